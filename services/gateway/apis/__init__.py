"""One module for each Kafka API; ``services.gateway.registry`` lists them."""
