pub use crate::Renamed;
use crate::made::Far;

pub trait Open {
    type Of;
    fn needed(&self) -> Far;
    fn given(&self) -> u32 { 1 }
}

trait Closed {}
impl Closed for Far {}
impl Open for u32 { type Of = Far; fn needed(&self) -> Far { todo!() } }
