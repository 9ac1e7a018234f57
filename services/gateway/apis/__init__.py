"""The Kafka APIs, one in each module. ``services.gateway.clients.registry`` lists them."""
