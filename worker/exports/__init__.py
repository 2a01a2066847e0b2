"""An outcome in the formats of others (README, "Exports"): what a run left, in; one document, out.  All of it pure."""
