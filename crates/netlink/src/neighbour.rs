//! Neighbours: the hardware addresses behind addresses of a link, and the machines behind hardware addresses of a VXLAN
//! device.

use std::net::IpAddr;

use netlink_bindings::rt_neigh::{Ndmsg, Request};

use crate::address::family;
use crate::{Error, Routing};

/// `NUD_PERMANENT`.
const PERMANENT: u16 = 0x80;
/// `NTF_SELF`: the device keeps the entry.
const OF_DEVICE: u8 = 2;
/// `AF_BRIDGE`.
const BRIDGE: u8 = 7;

/// An entry that stays until it is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Neighbour {
    /// An address on the link has this hardware address.
    Address {
        /// The link's number.
        link: u32,
        /// The address.
        address: IpAddr,
        /// The hardware address.
        hardware: [u8; 6],
    },
    /// Frames for this hardware address go to this machine (of a VXLAN device).
    Machine {
        /// The device's number.
        link: u32,
        /// The hardware address.
        hardware: [u8; 6],
        /// The machine.
        machine: IpAddr,
    },
}

impl Neighbour {
    fn parts(&self) -> (Ndmsg, IpAddr, [u8; 6]) {
        let mut header = Ndmsg::new();
        header.ndm_state = PERMANENT;
        let (link, address, hardware) = match *self {
            Self::Address { link, address, hardware } => {
                header.ndm_family = family(address);
                (link, address, hardware)
            }
            Self::Machine { link, hardware, machine } => {
                header.ndm_family = BRIDGE;
                header.ndm_flags = OF_DEVICE;
                (link, machine, hardware)
            }
        };
        header.ndm_ifindex = link.cast_signed();
        (header, address, hardware)
    }
}

impl Routing {
    /// The entries of a link that stay.
    pub fn neighbours(&mut self, link: u32) -> Result<Vec<Neighbour>, Error> {
        let found = std::cell::RefCell::new(Vec::new());
        for wanted in [2, 10, BRIDGE] {
            let mut header = Ndmsg::new();
            header.ndm_family = wanted;
            let mut request = Request::new().op_getneigh_dump(&header);
            if wanted != BRIDGE {
                request.encode().push_ifindex(link);
            }
            let before = found.borrow().len();
            self.0.list(
                "cannot list the neighbours",
                &request,
                || found.borrow_mut().truncate(before),
                |(header, attributes)| {
                    let hardware = attributes.get_lladdr().ok().and_then(|bytes| bytes.try_into().ok());
                    let (Ok(address), Some(hardware)) = (attributes.get_dst(), hardware) else { return };
                    if header.ndm_ifindex.cast_unsigned() != link || header.ndm_state & PERMANENT == 0 {
                        return;
                    }
                    found.borrow_mut().push(if wanted == BRIDGE {
                        Neighbour::Machine { link, hardware, machine: address }
                    } else {
                        Neighbour::Address { link, address, hardware }
                    });
                },
            )?;
        }
        Ok(found.into_inner())
    }

    /// Makes an entry, in place of one for the same address.
    pub fn replace_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), Error> {
        let (header, address, hardware) = neighbour.parts();
        let mut request = Request::new().set_create().set_replace().op_newneigh_do(&header);
        request.encode().push_dst(address).push_lladdr(&hardware);
        self.0.call(&format!("cannot make the neighbour {address}"), &request)
    }

    /// Removes an entry; none is no error.
    pub fn delete_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), Error> {
        let (header, address, hardware) = neighbour.parts();
        let mut request = Request::new().op_delneigh_do(&header);
        request.encode().push_dst(address).push_lladdr(&hardware);
        match self.0.call(&format!("cannot remove the neighbour {address}"), &request) {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(()),
        }
    }
}
