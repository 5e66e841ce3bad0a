//! The events of a watch, read with little work.

use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::target::{Op, Target};

/// The longest wait for the next event.
const LIMIT: Duration = Duration::from_mins(5);

/// A watch, on a connection of its own. An API server may end it, as kube-apiserver does where events come faster than
/// they are sent; it goes on behind the last event then, as every client's does.
pub(crate) struct Stream {
    target: Target,
    path: String,
    body: Incoming,
    buffer: Vec<u8>,
    at: usize,
    /// The last event that was read whole.
    last: Vec<u8>,
}

/// An event as far as its place among all is told.
#[derive(Deserialize)]
struct Placed {
    object: Object,
}

#[derive(Deserialize)]
struct Object {
    metadata: Version,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    resource_version: String,
}

impl Stream {
    /// Begins a watch of what a path selects.
    pub(crate) async fn new(target: Target, path: &str) -> Result<Self> {
        let body = target.send(Op::get(path)).await?.into_body();
        Ok(Self { target, path: path.to_owned(), body, buffer: Vec::new(), at: 0, last: Vec::new() })
    }

    async fn more(&mut self) -> Result<()> {
        let read = self.buffer.get(..self.at.saturating_sub(1)).unwrap_or_default();
        if let Some(last) = read.rsplit(|byte| *byte == b'\n').next().filter(|last| !last.is_empty()) {
            last.clone_into(&mut self.last);
        }
        self.buffer.drain(..self.at);
        self.at = 0;
        let frame = tokio::time::timeout(LIMIT, self.body.frame()).await.context("no event comes")?;
        let Some(frame) = frame else { return self.go_on().await };
        self.buffer.extend_from_slice(frame?.data_ref().map_or(&[][..], |d| d));
        Ok(())
    }

    /// Begins the watch anew behind the last event.
    async fn go_on(&mut self) -> Result<()> {
        let last: Placed = serde_json::from_slice(&self.last).context("the watch ended before an event")?;
        let path = format!("{}&resourceVersion={}", self.path, last.object.metadata.resource_version);
        // A part of an event comes again as a whole.
        self.buffer.clear();
        self.body = self.target.send(Op::get(path)).await?.into_body();
        Ok(())
    }

    /// The next event, as a type has it.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> Result<T> {
        loop {
            let rest = self.buffer.get(self.at..).unwrap_or_default();
            if let Some(end) = memchr::memchr(b'\n', rest) {
                let event = serde_json::from_slice(&rest[..end])?;
                self.at += end + 1;
                return Ok(event);
            }
            self.more().await?;
        }
    }

    /// Waits for so many events.
    pub(crate) async fn count(&mut self, wanted: usize) -> Result<()> {
        let mut seen = 0;
        loop {
            let rest = self.buffer.get(self.at..).unwrap_or_default();
            seen += memchr::memchr_iter(b'\n', rest).count();
            self.at += memchr::memrchr(b'\n', rest).map_or(0, |last| last + 1);
            if seen >= wanted {
                return Ok(());
            }
            self.more().await?;
        }
    }
}
