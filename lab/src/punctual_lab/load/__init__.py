"""Open-loop HTTP load: request i leaves at its time whatever happened to the others."""
