"""What an update takes, what its rewards teach, and who watches it: the options of training, by `train` in params.yaml.

Each part fits one seam of lib/updates.py: sources.py and curricula.py its `Source`, objectives.py its `Objective`, guards.py
its `Guard`; building.py makes them from the settings. rates.py keeps how often questions were answered, which the choice of
questions starts from.
"""
