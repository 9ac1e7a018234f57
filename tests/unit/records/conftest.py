from hypothesis import HealthCheck, settings

# A busy machine makes single examples slow, which says nothing about the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
