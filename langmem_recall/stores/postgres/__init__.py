"""What a Postgres store offers beyond any other."""
