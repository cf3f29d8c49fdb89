//! What the guarded resource does with a fencing token.
