"""What an update takes, what its rewards teach, and who watches it: the parts from which the arms of an experiment are made.

Each part fits one seam of lib/updates.py: sources.py and curricula.py its `Source`, objectives.py its `Objective`, guards.py
its `Guard`. rates.py keeps how often questions were answered, which the choice of questions starts from.
"""
