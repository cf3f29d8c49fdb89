//! The machine as others see it.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

/// Returns an address of this machine at which other machines reach it. Sends nothing.
#[must_use]
pub fn outward() -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(address) if !address.is_loopback() => Some(address),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}
