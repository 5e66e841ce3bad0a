//! The events of a watch, read with little work.

use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;

use crate::target::{Op, Target};

/// The longest wait for the next event.
const LIMIT: Duration = Duration::from_mins(5);

/// A watch, on a connection of its own.
pub(crate) struct Stream {
    // The connection ends with it.
    _target: Target,
    body: Incoming,
    buffer: Vec<u8>,
    at: usize,
}

impl Stream {
    /// Begins a watch of what a path selects.
    pub(crate) async fn new(target: Target, path: &str) -> Result<Self> {
        let body = target.send(Op::get(path)).await?.into_body();
        Ok(Self { _target: target, body, buffer: Vec::new(), at: 0 })
    }

    async fn more(&mut self) -> Result<()> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let frame = tokio::time::timeout(LIMIT, self.body.frame()).await.context("no event comes")?;
        let frame = frame.context("the watch ended")??;
        self.buffer.extend_from_slice(frame.data_ref().map_or(&[][..], |d| d));
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
