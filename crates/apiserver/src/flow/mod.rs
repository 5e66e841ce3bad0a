//! API priority and fairness: which requests run, which wait, and which are refused. Flow schemas sort requests into
//! priority levels ([`classify`]); each level has seats ([`borrowing`]), and queues for those that find none
//! ([`queues`]), where flows are kept apart ([`shuffle`]). Large requests take several seats ([`width`]).
//!
//! The facts are upstream's (`util/flowcontrol`): its rules, figures and metrics.

mod bodies;
mod borrowing;
mod classify;
mod config;
mod control;
mod counts;
mod demand;
mod dropped;
mod dump;
mod feed;
mod in_flight;
mod levels;
mod live;
mod metrics;
mod queues;
#[cfg(test)]
mod queues_tests;
mod shuffle;
#[cfg(test)]
mod tests;
mod watchers;
mod width;

pub(crate) use self::bodies::Room;
pub(crate) use self::control::{Asked, Caller, Flow, Patience, Seat, TooMany};
pub(crate) use self::feed::{count_objects, follow};
pub(crate) use self::watchers::{Watchers, Watches};
