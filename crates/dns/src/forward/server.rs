//! One server that is asked: over UDP, over TCP where an answer was cut; and whether it answers at all.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use component::Shutdown;
use component::metrics::{Histogram, Page};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, sleep, timeout};

use super::message::{self, Unfit};
use crate::cache::{Answer, Question};
use crate::metrics::TIMES;
use crate::packet::{Rcode, kind, rcode_of};

/// How long a server may take; CoreDNS' read timeout.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// How long between two checks of a server that failed; CoreDNS'.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// How long a server may take to answer a check; CoreDNS'.
const CHECK_TIME: Duration = Duration::from_secs(1);
/// So many checks fail before a server is passed over; CoreDNS'.
const MAX_FAILS: u32 = 2;
/// So many packets that answer something else are passed over.
const MAX_FOREIGN: usize = 64;
/// The longest answer over UDP that is read; some servers send more than they were asked for.
const LONGEST: usize = 4096;

/// The reason for which a server gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// It cannot be reached.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It takes too long.
    #[error("it does not answer in time")]
    Time,
    /// It answers what was not asked.
    #[error("its answers are not to the question")]
    Foreign,
    /// Its answer cannot be read.
    #[error("its answer is malformed")]
    Malformed,
}

/// A server.
pub(crate) struct Server {
    address: SocketAddr,
    fails: AtomicU32,
    checking: AtomicBool,
    /// Whether its questions come back to us.
    looping: AtomicBool,
    /// Makes numbers that nobody else can guess: hashes under a key of this server.
    secret: RandomState,
    asked: AtomicU64,
    check_failures: AtomicU64,
    times: Mutex<BTreeMap<&'static str, Histogram>>,
}

impl Server {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            fails: AtomicU32::new(0),
            checking: AtomicBool::new(false),
            looping: AtomicBool::new(false),
            secret: RandomState::new(),
            asked: AtomicU64::new(0),
            check_failures: AtomicU64::new(0),
            times: Mutex::default(),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it is passed over while others are there.
    pub(crate) fn is_down(&self) -> bool {
        self.fails.load(Ordering::Relaxed) > MAX_FAILS
    }

    pub(crate) fn is_looping(&self) -> bool {
        self.looping.load(Ordering::Relaxed)
    }

    /// Notes that its questions come back to us.
    pub(crate) fn set_looping(&self) {
        self.looping.store(true, Ordering::Relaxed);
    }

    /// A number that nobody else can guess.
    pub(crate) fn random(&self) -> u64 {
        self.secret.hash_one(self.asked.fetch_add(1, Ordering::Relaxed))
    }

    /// Asks it, until a time at the latest.
    pub(crate) async fn ask(&self, question: &Question, until: Instant) -> Result<Answer, AskError> {
        let began = Instant::now();
        let until = until.min(began + ANSWER_TIME);
        let left = until.saturating_duration_since(began);
        let answer = timeout(left, self.exchange(question)).await.unwrap_or(Err(AskError::Time));
        if let Ok(answer) = &answer {
            let name = Rcode::name(rcode_of(&answer.message));
            let mut times = self.times.lock();
            times.entry(name).or_insert_with(|| Histogram::new(TIMES)).observe(began.elapsed().as_secs_f64());
        }
        answer
    }

    async fn exchange(&self, question: &Question) -> Result<Answer, AskError> {
        let mut edns = true;
        loop {
            match self.over_udp(question, edns).await? {
                Ok(answer) => return Ok(answer),
                Err(Unfit::NoEdns) if edns => edns = false,
                Err(Unfit::Truncated) => return self.over_tcp(question, edns).await,
                Err(_) => return Err(AskError::Malformed),
            }
        }
    }

    async fn over_udp(&self, question: &Question, edns: bool) -> Result<Result<Answer, Unfit>, AskError> {
        let any: SocketAddr = match self.address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        // A socket of its own: a port that nobody can guess, and packets from this server alone.
        let socket = UdpSocket::bind(any).await?;
        socket.connect(self.address).await?;
        let id = self.random() as u16;
        socket.send(&message::ask(question, id, edns)).await?;
        let mut packet = vec![0; LONGEST];
        for _ in 0..MAX_FOREIGN {
            let length = socket.recv(&mut packet).await?;
            match message::read(&packet[..length], question, id, edns) {
                Err(Unfit::Foreign) => {}
                read => return Ok(read),
            }
        }
        Err(AskError::Foreign)
    }

    async fn over_tcp(&self, question: &Question, edns: bool) -> Result<Answer, AskError> {
        let mut stream = TcpStream::connect(self.address).await?;
        let id = self.random() as u16;
        let packet = message::ask(question, id, edns);
        let length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
        stream.write_all(&[&length.to_be_bytes()[..], &packet].concat()).await?;
        let mut answer = vec![0; usize::from(stream.read_u16().await?)];
        stream.read_exact(&mut answer).await?;
        message::read(&answer, question, id, edns).map_err(|unfit| match unfit {
            Unfit::Foreign => AskError::Foreign,
            _ => AskError::Malformed,
        })
    }

    /// Notes that it failed: it is checked until it answers again.
    pub(crate) fn failed(self: &Arc<Self>, shutdown: &Shutdown) {
        if self.checking.swap(true, Ordering::Relaxed) {
            return;
        }
        let (server, stop) = (self.clone(), shutdown.clone());
        shutdown.spawn_one(async move {
            stop.run(server.check()).await;
            server.checking.store(false, Ordering::Relaxed);
        });
    }

    async fn check(&self) {
        let root = Question { name: [0].into(), kind: kind::NS, dnssec: false, unchecked: false };
        // Only servers that somebody asks are checked: a server that nobody asks for this long is left.
        for _ in 0..600 {
            // Any answer will do, as in CoreDNS.
            if let Ok(Ok(_) | Err(AskError::Malformed)) = timeout(CHECK_TIME, self.exchange(&root)).await {
                break;
            }
            self.check_failures.fetch_add(1, Ordering::Relaxed);
            if self.fails.fetch_add(1, Ordering::Relaxed) == MAX_FAILS {
                tracing::warn!(server = %self.address, "the name server does not answer");
            }
            sleep(CHECK_EVERY).await;
        }
        if self.is_down() {
            tracing::info!(server = %self.address, "the name server is asked again");
        }
        self.fails.store(0, Ordering::Relaxed);
    }

    pub(crate) fn report(&self, page: &mut Page) {
        let to = self.address.to_string();
        let name = "coredns_proxy_request_duration_seconds";
        page.metric(name, "histogram", "Histogram of the time each request took.");
        for (rcode, histogram) in &*self.times.lock() {
            page.histogram(name, &[("proxy_name", "forward"), ("to", &to), ("rcode", rcode)], histogram);
        }
        let name = "coredns_proxy_healthcheck_failures_total";
        let count = self.check_failures.load(Ordering::Relaxed);
        page.metric(name, "counter", "Counter of the number of failed healthchecks.");
        page.value(name, &[("proxy_name", "forward"), ("to", &to)], count as f64);
    }
}
