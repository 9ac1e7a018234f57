"""The Admin service: what operators ask of a cluster, by the means that Kafka's APIs have too."""
