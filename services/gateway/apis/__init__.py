"""One module for each Kafka API; ``services.gateway.clients.registry`` lists them."""
