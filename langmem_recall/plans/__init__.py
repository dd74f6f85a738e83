"""The flows of a read, written once: what to ask a store for, what to make of the answers."""
