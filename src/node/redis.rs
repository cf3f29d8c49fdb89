//! A node that is a Redis or Valkey server.

pub mod scripts;
