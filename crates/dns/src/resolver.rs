//! Answers packets: from the zone, from the cache, or by asking other servers.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use component::Shutdown;
use component::metrics::Page;

use crate::cache::{Cache, Held, Question};
use crate::forward::{Forwarder, Group, failure, join};
use crate::limits::{InFlight, Place};
use crate::metrics::{Area, Metrics, Served};
use crate::name::{Name, QName};
use crate::packet::{self, Bad, IN, Query, Rcode, Transport, Writer, kind};
use crate::zone::{Lookup, Zone};

/// Answers packets.
pub struct Resolver {
    pub(crate) zone: Arc<Zone>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) forwarder: Arc<Forwarder>,
    pub(crate) flights: Arc<InFlight>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) shutdown: Shutdown,
}

/// The place that a packet came from.
#[derive(Debug, Clone, Copy)]
pub struct Origin {
    /// How it came.
    pub transport: Transport,
    /// Its sender.
    pub source: IpAddr,
}

/// The way that a packet goes.
pub enum Step {
    /// The answer was written.
    Reply,
    /// It gets no answer.
    Drop,
    /// Another server must be asked.
    Later(Box<Pending>),
}

/// A question for which another server is asked.
pub struct Pending {
    query: Query,
    size: usize,
    origin: Origin,
    began: Instant,
    question: Question,
    group: Arc<Group>,
    /// The answer so far, if our CNAMEs led to the question.
    cnames: Option<Vec<u8>>,
    area: Area,
    _place: Place,
}

/// The question that another server gets.
fn question(query: &Query, name: &[u8]) -> Question {
    let unchecked = query.flags & packet::flag::CD != 0;
    Question { name: name.into(), kind: query.kind, dnssec: query.dnssec(), unchecked }
}

impl Resolver {
    /// Answers a packet as far as that is possible at once. The answer goes to `out`.
    pub fn step(&self, packet: &[u8], origin: Origin, out: &mut Vec<u8>) -> Step {
        // One packet that breaks us must not cost the others.
        catch_unwind(AssertUnwindSafe(|| self.try_step(packet, origin, out))).unwrap_or_else(|_| {
            self.metrics.panics.fetch_add(1, Ordering::Relaxed);
            Step::Drop
        })
    }

    fn try_step(&self, packet: &[u8], origin: Origin, out: &mut Vec<u8>) -> Step {
        let began = Instant::now();
        let query = match Query::read(packet) {
            Ok(query) => query,
            Err(Bad::Ignore) => return Step::Drop,
            Err(Bad::Refuse { id, flags, rcode }) => {
                packet::refuse(id, flags, rcode, out);
                self.count(Area::Dropped, None, packet.len(), origin, began, out);
                return Step::Reply;
            }
        };
        let (area, step) = self.answer(query, packet.len(), origin, began, out);
        match step {
            Ok(step) => step,
            Err(query) => {
                self.count(area, Some(&query), packet.len(), origin, began, out);
                Step::Reply
            }
        }
    }

    /// Answers a query, or (as an error) gives it back answered.
    fn answer(
        &self,
        query: Query,
        size: usize,
        origin: Origin,
        began: Instant,
        out: &mut Vec<u8>,
    ) -> (Area, Result<Step, Query>) {
        let refusal = match &query {
            Query { edns: Some(edns), .. } if edns.version > 0 => Some(Rcode::BadVers),
            Query { class, .. } if *class != IN => Some(Rcode::Refused),
            Query { kind: kind::AXFR | kind::IXFR | kind::OPT, .. } => Some(Rcode::Refused),
            _ => None,
        };
        if let Some(rcode) = refusal {
            packet::empty(&query, rcode, out);
            return (Area::Dropped, Err(query));
        }
        let limit = query.limit(origin.transport);
        let mut writer = Writer::new(&query, limit, out);
        let lookup = self.zone.answer(&mut writer);
        let area = match &lookup {
            Lookup::Outside => Area::Outside,
            _ if query.name.lower().ends_with(b"\x04arpa\0") => Area::Reverse,
            _ => Area::Cluster,
        };
        let (asked, cnames) = match lookup {
            Lookup::Answered(rcode) => {
                writer.finish(rcode, rcode != Rcode::ServFail);
                return (area, Err(query));
            }
            Lookup::Unknown => {
                writer.finish(Rcode::ServFail, false);
                return (area, Err(query));
            }
            Lookup::Outside => (question(&query, query.name.lower()), None),
            Lookup::Elsewhere(target) => {
                writer.finish(Rcode::NoError, true);
                (question(&query, target.wire()), Some((out.clone(), target)))
            }
        };
        if query.kind == kind::HINFO && self.forwarder.came_back(&query.name) {
            packet::empty(&query, Rcode::ServFail, out);
            return (area, Err(query));
        }
        let group = match &cnames {
            Some((_, target)) => self.group_of(target),
            None => self.forwarder.group(&query.name).cloned(),
        };
        let cnames = cnames.map(|(written, _)| written);
        let Some(group) = group else {
            // Our own CNAMEs are an answer of their own.
            if cnames.is_none() {
                packet::empty(&query, Rcode::Refused, out);
            }
            return (area, Err(query));
        };
        if let Some(held) = self.cache.get(&asked) {
            reply(&query, origin.transport, cnames.as_deref(), &held, out);
            return (area, Err(query));
        }
        let Some(place) = self.flights.enter(origin.source) else {
            self.metrics.rejected.fetch_add(1, Ordering::Relaxed);
            packet::empty(&query, Rcode::Refused, out);
            return (area, Err(query));
        };
        let pending =
            Pending { query, size, origin, began, question: asked, group, cnames, area, _place: place };
        (area, Ok(Step::Later(Box::new(pending))))
    }

    fn group_of(&self, target: &Name) -> Option<Arc<Group>> {
        self.forwarder.group(&QName::from(target)).cloned()
    }

    /// Gets the answer to a question from another server. It goes to `out`.
    pub async fn finish(&self, pending: Pending, out: &mut Vec<u8>) {
        let Pending { query, question, group, cnames, origin, .. } = &pending;
        let ask = {
            let (forwarder, group, question) = (self.forwarder.clone(), group.clone(), question.clone());
            async move { forwarder.ask(&group, &question).await }
        };
        let spawn = |task| drop(self.shutdown.spawn_one(task));
        let held = self.cache.ask(question, spawn, ask).await;
        let held = held.unwrap_or_else(|| (Arc::new(failure(question)), 0));
        reply(query, origin.transport, cnames.as_deref(), &held, out);
        self.count(pending.area, Some(query), pending.size, *origin, pending.began, out);
    }

    fn count(
        &self,
        area: Area,
        query: Option<&Query>,
        request: usize,
        origin: Origin,
        began: Instant,
        response: &[u8],
    ) {
        let Origin { transport, source } = origin;
        let took = began.elapsed();
        self.metrics.served(&Served { area, transport, source, query, request, response, took });
    }

    /// Tells everything that was counted.
    pub fn report(&self, page: &mut Page) {
        self.metrics.report(page);
        self.metrics.report_cache(page, &self.cache);
        self.forwarder.report(page);
    }
}

/// Writes another server's answer, behind our CNAMEs if these led there.
fn reply(query: &Query, transport: Transport, cnames: Option<&[u8]>, held: &Held, out: &mut Vec<u8>) {
    let (answer, ttl) = held;
    let limit = query.limit(transport);
    match cnames {
        None => drop(packet::adapt(&answer.message, query, limit, Some(*ttl), out)),
        Some(cnames) => match join(cnames, answer, *ttl) {
            Some(joined) => drop(packet::adapt(&joined, query, limit, None, out)),
            None => packet::empty(query, Rcode::ServFail, out),
        },
    }
}
