from adaptive import LOOP_NOTES, LOOP_ROUNDS, SCAN_ROUNDS, STANDING, needs, table


def test_standing_notes_come_back_in_scans_and_loop_notes_never_after_their_loop():
    steps = list(needs(4))
    phases = [step.phase for step in steps if step.again]

    # Of the standing ones only the first round of all is new; of a loop its first round.
    assert phases.count("scan") == (2 * SCAN_ROUNDS - 1) * STANDING
    assert phases.count("loop") == 2 * (LOOP_ROUNDS - 1) * LOOP_NOTES
    in_loops = [{step.note for step in steps[i : i + 40]} for i in (75, 190)]
    assert not in_loops[0] & in_loops[1]
    assert len(in_loops[0]) == LOOP_NOTES


def test_the_adaptive_balance_beats_fixed_ones_on_scans_and_loops_by_turns():
    rows = table(4, balances=(0.0, 0.3, 0.4, 0.5, 1.0))
    shares = {name: shares[2] for name, shares in rows.items()}
    adaptive = shares.pop("adaptive")

    assert adaptive > max(shares.values()) + 0.05
