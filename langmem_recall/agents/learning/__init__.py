"""What a session leaves behind and starts with."""
