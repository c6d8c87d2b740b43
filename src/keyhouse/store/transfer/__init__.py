"""Transfer: whole stores moved, backed up, restored, exported and imported."""
