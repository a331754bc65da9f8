"""The children of a policy: one pure builder for each kind of object."""
