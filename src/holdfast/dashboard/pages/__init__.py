"""The pages of the dashboard, a module for each subject: each has a `router` whose paths are written in full."""
