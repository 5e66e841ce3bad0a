//! The HTTP front: connections, what comes in through them and what goes out.

mod body;
mod coalesce;
mod connection;
mod leash;
mod outbox;
mod peer;
mod response;
mod strangers;
pub(crate) mod websocket;

pub(crate) use body::{Body, BodyError, PieceBody, Unread, full, read_body, throw_away};
pub(crate) use leash::{Due, Leash};
pub(crate) use peer::Peer;
pub(crate) use response::{add_warnings, header, outcome_response, status_response, text};
