//! PostgreSQL 12 to 18.
