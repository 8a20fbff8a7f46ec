"""Health URLs for load balancers and Kubernetes: anonymous, and without any detail."""
