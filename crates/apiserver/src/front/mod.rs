//! The HTTP front: connections, what comes in through them and what goes out.

mod answer;
mod body;
mod coalesce;
mod connection;
pub(crate) mod lifetime;
mod outbox;
mod peer;
mod policy;
mod response;
mod strangers;
mod tls;
pub(crate) mod websocket;

pub(crate) use answer::outcome_response;
pub(crate) use body::{Body, BodyError, PieceBody, Unread, full, read_body, throw_away};
pub(crate) use lifetime::Lifetime;
pub(crate) use peer::Peer;
pub(crate) use policy::Policy;
pub(crate) use response::{header, status_response, text};
pub(crate) use tls::{ServerTls, Serves};
