from hypothesis import HealthCheck, settings

# On a busy machine, single examples can be slow for reasons outside of the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
