"""The kopf operator that reconciles AdmissionPolicy objects."""
