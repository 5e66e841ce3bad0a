//! Limits of what a link sends.

use netlink_bindings::traits::{NetlinkRequest, Protocol};

use crate::attributes::{nest, put, put_text};
use crate::{Error, Routing};

/// A limit by a bucket of tokens (`tbf`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Bytes a second; more than none.
    pub rate: u64,
    /// Bytes that may be sent at once after a rest.
    pub burst: u32,
    /// Bytes that wait; others are dropped.
    pub queue: u32,
}

/// `RTM_NEWQDISC`.
const NEW_QDISC: u16 = 36;
/// `NLM_F_REPLACE | NLM_F_CREATE`.
const REPLACE: u16 = 0x100 | 0x400;
/// `TC_H_ROOT`, and the name of the limit there.
const ROOT: u32 = u32::MAX;
const HANDLE: u32 = 1 << 16;
/// `TCA_KIND`, `TCA_OPTIONS`; `TCA_TBF_…`.
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const PARAMETERS: u16 = 1;
const RATE64: u16 = 4;
const BURST: u16 = 6;
/// `TC_LINKLAYER_ETHERNET`.
const ETHERNET: u8 = 1;

/// A request to make a queue.
struct NewQueue(Vec<u8>);

impl NewQueue {
    fn new(link: u32, limit: &Limit) -> Self {
        // `struct tcmsg`: family, link, handle, parent, info.
        let mut out = vec![0; 4];
        for word in [link, HANDLE, ROOT, 0] {
            out.extend(word.to_ne_bytes());
        }
        put_text(&mut out, KIND, "tbf");
        nest(&mut out, OPTIONS, |to| {
            put(to, PARAMETERS, &parameters(limit));
            if u32::try_from(limit.rate).is_err() {
                put(to, RATE64, &limit.rate.to_ne_bytes());
            }
            put(to, BURST, &limit.burst.to_ne_bytes());
        });
        Self(out)
    }
}

/// `struct tc_tbf_qopt`: the rate, no peak rate, the length of the queue; the burst has an attribute of its own.
fn parameters(limit: &Limit) -> Vec<u8> {
    let rate = u32::try_from(limit.rate).unwrap_or(u32::MAX);
    let mut out = vec![0, ETHERNET, 0, 0, 0, 0, 0, 0];
    out.extend(rate.to_ne_bytes());
    out.extend([0; 12]);
    out.extend(limit.queue.to_ne_bytes());
    out.extend([0; 8]);
    out
}

impl NetlinkRequest for NewQueue {
    type ReplyType<'buf> = ();
    fn protocol(&self) -> Protocol {
        Protocol::Raw { protonum: 0, request_type: NEW_QDISC }
    }
    fn flags(&self) -> u16 {
        REPLACE
    }
    fn payload(&self) -> &[u8] {
        &self.0
    }
    fn decode_reply(_: &[u8]) -> Self::ReplyType<'_> {}
}

impl Routing {
    /// Limits what a link sends, in place of a limit that it has.
    pub fn limit_link(&mut self, link: u32, limit: &Limit) -> Result<(), Error> {
        self.0.call(&format!("cannot limit what link {link} sends"), &NewQueue::new(link, limit))
    }
}
