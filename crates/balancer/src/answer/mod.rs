//! Answers to those on a link who ask for the addresses that this node holds.

mod arp;
mod ndp;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use component::Shutdown;
use netlink::Frames;
use parking_lot::Mutex;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, sockopt};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::time::Instant;

use crate::links::Place;

/// `ETH_P_ARP`.
const ARP: u16 = 0x0806;
/// All nodes of a link.
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// The longest packet that is read; those that matter are shorter.
const LONGEST: usize = 1500;

/// Addresses, and until when they are held.
type Until = (BTreeSet<IpAddr>, Instant);

/// The addresses that are held at present.
#[derive(Debug, Clone, Default)]
pub(crate) struct Held(Arc<Mutex<Option<Until>>>);

impl Held {
    /// Sets what is held; returns the addresses that are new.
    pub(crate) fn set(&self, held: Option<Until>) -> Vec<IpAddr> {
        let mut there = self.0.lock();
        let before = there.take().map(|(all, _)| all).unwrap_or_default();
        let new = held.iter().flat_map(|(all, _)| all).filter(|a| !before.contains(a)).copied().collect();
        *there = held;
        new
    }

    /// Whether an address is held at this very moment.
    fn has(&self, address: IpAddr) -> bool {
        self.0.lock().as_ref().is_some_and(|(all, until)| all.contains(&address) && Instant::now() < *until)
    }
}

/// The sockets of one link.
struct OnLink {
    places: Vec<Place>,
    arp: Option<Arc<Frames>>,
    ndp: Option<Arc<Neighbours>>,
    /// The groups by which others ask for the addresses.
    groups: BTreeSet<Ipv6Addr>,
    /// Ends the tasks that read.
    stop: Shutdown,
}

/// The sockets of all links on which addresses are held.
pub(crate) struct Answers {
    held: Held,
    links: BTreeMap<u32, OnLink>,
    shutdown: Shutdown,
}

impl Answers {
    pub(crate) fn new(held: Held, shutdown: Shutdown) -> Self {
        Self { held, links: BTreeMap::new(), shutdown }
    }

    /// Opens sockets where addresses may be held, and closes the others.
    pub(crate) async fn set_places(&mut self, places: &[Place]) {
        let mut by_link: BTreeMap<u32, Vec<Place>> = BTreeMap::new();
        for place in places {
            by_link.entry(place.link).or_default().push(place.clone());
        }
        for (link, on) in std::mem::take(&mut self.links) {
            if by_link.get(&link) == Some(&on.places) {
                self.links.insert(link, on);
            } else {
                on.stop.finish().await;
            }
        }
        for (link, places) in by_link {
            if self.links.contains_key(&link) {
                continue;
            }
            match self.open(link, places) {
                Ok(on) => drop(self.links.insert(link, on)),
                Err(error) => tracing::warn!(link, %error, "addresses cannot be announced on a link"),
            }
        }
    }

    fn open(&self, link: u32, places: Vec<Place>) -> io::Result<OnLink> {
        let stop = self.shutdown.child();
        let hardware = places.first().map(|place| place.hardware).unwrap_or_default();
        let of = |v6: bool| places.iter().any(|place| place.network.is_v6() == v6);
        let mut on = OnLink { arp: None, ndp: None, groups: BTreeSet::new(), stop, places: places.clone() };
        if of(false) {
            let socket = Arc::new(Frames::open(link, ARP)?);
            on.arp = Some(socket.clone());
            let (held, stopping) = (self.held.clone(), on.stop.clone());
            on.stop.spawn(async move {
                stopping.run(answer_arp(socket, hardware, held)).await;
            });
        }
        if of(true) {
            let socket = Arc::new(Neighbours::open(link)?);
            on.ndp = Some(socket.clone());
            let (held, stopping) = (self.held.clone(), on.stop.clone());
            on.stop.spawn(async move {
                stopping.run(answer_ndp(socket, hardware, held)).await;
            });
        }
        Ok(on)
    }

    /// Listens for those who ask for the IPv6 addresses among these, and for no others.
    pub(crate) fn listen_for(&mut self, addresses: &BTreeSet<IpAddr>) {
        for on in self.links.values_mut() {
            let Some(socket) = &on.ndp else { continue };
            let mine = addresses.iter().filter(|a| is_on(**a, &on.places));
            let groups: BTreeSet<Ipv6Addr> = mine.filter_map(|a| ndp::group(*a)).collect();
            for group in groups.difference(&on.groups) {
                if let Err(error) = socket.join(group) {
                    tracing::warn!(%group, %error, "a multicast group cannot be joined");
                }
            }
            for group in on.groups.difference(&groups) {
                // It may be gone with the link's address.
                let _ = socket.leave(group);
            }
            on.groups = groups;
        }
    }

    /// Tells everybody on the link that this node has an address now.
    pub(crate) fn tell(&self, address: IpAddr) {
        for on in self.links.values().filter(|on| is_on(address, &on.places)) {
            let Some(hardware) = on.places.first().map(|place| place.hardware) else { continue };
            let told = match (address, &on.arp, &on.ndp) {
                (IpAddr::V4(address), Some(socket), _) => {
                    arp::announcements(address, hardware).iter().try_for_each(|f| socket.send(f))
                }
                (IpAddr::V6(address), _, Some(socket)) => {
                    socket.send(&ndp::advertisement(address, hardware, false), ALL_NODES)
                }
                _ => Ok(()),
            };
            if let Err(error) = told {
                tracing::debug!(%address, %error, "an address was not announced");
            }
        }
    }
}

fn is_on(address: IpAddr, places: &[Place]) -> bool {
    places.iter().any(|place| place.network.contains(address.into()))
}

/// Waits for what a socket receives, by a copy of it that the runtime knows; each thing that comes is given to `take`.
async fn each(socket: &impl AsFd, mut take: impl FnMut() -> io::Result<()>) {
    // The runtime asks a socket of this type for nothing but whether something has come.
    let copy = socket.as_fd().try_clone_to_owned().map(std::net::UdpSocket::from);
    let copy = match copy.and_then(UdpSocket::from_std) {
        Ok(copy) => copy,
        Err(error) => {
            tracing::warn!(%error, "a link cannot be listened to");
            return;
        }
    };
    while copy.readable().await.is_ok() {
        match copy.try_io(Interest::READABLE, &mut take) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                // A link that is down says so once.
                tracing::debug!(%error, "listening on a link");
            }
            _ => {}
        }
    }
}

async fn answer_arp(socket: Arc<Frames>, hardware: [u8; 6], held: Held) {
    let mut buffer = vec![0; LONGEST];
    let take = || {
        let length = socket.receive(&mut buffer)?;
        let asked = arp::request(&buffer[..length.min(LONGEST)]);
        if let Some(asked) = asked.filter(|asked| held.has(asked.target.into())) {
            // A host that gets no answer asks again.
            let _ = socket.send(&arp::reply(&asked, hardware));
        }
        Ok(())
    };
    each(&*socket, take).await;
}

async fn answer_ndp(socket: Arc<Neighbours>, hardware: [u8; 6], held: Held) {
    let mut buffer = vec![0; LONGEST];
    let take = || {
        let (length, source) = socket.receive(&mut buffer)?;
        let target = ndp::solicitation(&buffer[..length.min(LONGEST)]);
        let Some(target) = target.filter(|target| held.has((*target).into())) else { return Ok(()) };
        // Somebody without an address asks whether this one is free: all are told that it is not.
        let is_known = !source.is_unspecified();
        let to = if is_known { source } else { ALL_NODES };
        let _ = socket.send(&ndp::advertisement(target, hardware, is_known), to);
        Ok(())
    };
    each(&*socket, take).await;
}

/// A socket for ICMPv6 on a link.
struct Neighbours {
    socket: OwnedFd,
    link: u32,
}

impl Neighbours {
    fn open(link: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::INET6, SocketType::RAW, flags, Some(ipproto::ICMPV6))?;
        // Neighbours take nothing that a router may have passed on.
        sockopt::set_ipv6_multicast_hops(&socket, 255)?;
        sockopt::set_ipv6_unicast_hops(&socket, Some(255))?;
        sockopt::set_ipv6_multicast_loop(&socket, false)?;
        Ok(Self { socket, link })
    }

    fn join(&self, group: &Ipv6Addr) -> io::Result<()> {
        Ok(sockopt::set_ipv6_add_membership(&self.socket, group, self.link)?)
    }

    fn leave(&self, group: &Ipv6Addr) -> io::Result<()> {
        Ok(sockopt::set_ipv6_drop_membership(&self.socket, group, self.link)?)
    }

    fn send(&self, packet: &[u8], to: Ipv6Addr) -> io::Result<()> {
        let to = SocketAddrV6::new(to, 0, 0, self.link);
        rustix::net::sendto(&self.socket, packet, SendFlags::empty(), &to)?;
        Ok(())
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, Ipv6Addr)> {
        let (length, _, source) = rustix::net::recvfrom(&self.socket, buffer, RecvFlags::empty())?;
        let source = source.and_then(|source| SocketAddrV6::try_from(source).ok());
        Ok((length, source.map_or(Ipv6Addr::UNSPECIFIED, |source| *source.ip())))
    }
}

impl AsFd for Neighbours {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
