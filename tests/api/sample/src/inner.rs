use std::fmt;

use other::deep::{Dependency, self as deep};

pub struct Plain;
pub struct Hidden;
pub(crate) struct Secret;

/// Documentation is not listed.
#[derive(Clone)]
#[must_use = "it is worth it"]
pub struct Shown<T> {
    pub field: Dependency<T>,
    secret: Secret,
}

impl<T> Shown<T> {
    pub fn method(mut self, mut by: u32) -> crate::made::Far { todo!() }
    fn secret(&self) {}
}

impl<T> Shown<T> {
    pub async fn elsewhere(&self) -> deep::Deep { todo!() }
}

impl<T> fmt::Display for Shown<T> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result { todo!() }
}

impl fmt::Display for Secret {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result { todo!() }
}

pub fn count(of: &Secret) -> usize { 0 }
