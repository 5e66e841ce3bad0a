//! One step of the controller: at most one write, and what is told of it.

use client::{EventType, Key};
use k8s_openapi::api::core::v1::{PersistentVolume as Volume, PersistentVolumeClaim as Claim};

/// A write of one object.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Write {
    /// A volume, but for its status.
    Volume(Box<Volume>),
    /// The status of a volume.
    VolumeStatus(Box<Volume>),
    /// A claim, but for its status.
    Claim(Box<Claim>),
    /// The status of a claim.
    ClaimStatus(Box<Claim>),
}

/// The object of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// The claim.
    Claim,
    /// The volume.
    Volume,
}

/// An Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) about: About,
    pub(super) kind: EventType,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Told {
    /// An Event about a claim.
    pub(super) fn claim(kind: EventType, reason: &'static str, message: impl Into<String>) -> Self {
        Self { about: About::Claim, kind, reason, message: message.into() }
    }
    /// An Event about a volume.
    pub(super) fn volume(kind: EventType, reason: &'static str, message: impl Into<String>) -> Self {
        Self { about: About::Volume, kind, reason, message: message.into() }
    }
}

/// The next step about a claim or a volume.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Step {
    /// The write.
    pub(super) write: Option<Write>,
    /// Events to be recorded once the write has succeeded; at once if there is none.
    pub(super) told: Vec<Told>,
    /// Whether there may be more to do after the write.
    pub(super) more: bool,
    /// Whether the write gives a claim the default class.
    pub(super) gives_class: bool,
    /// The claim that is to be looked at.
    pub(super) look_at: Option<Key>,
    /// Why it is to be tried again.
    pub(super) error: Option<String>,
}

impl Step {
    /// Nothing is to be done.
    pub(super) fn nothing() -> Self {
        Self::default()
    }
    /// An Event, and nothing else.
    pub(super) fn tell(told: Told) -> Self {
        Self { told: vec![told], ..Self::default() }
    }
    /// A write, after which there may be more to do.
    pub(super) fn write(write: Write) -> Self {
        Self { write: Some(write), more: true, ..Self::default() }
    }
    /// A write, if one is necessary, after which there is nothing to do.
    pub(super) fn last(write: Option<Write>) -> Self {
        Self { write, ..Self::default() }
    }
    /// A failure.
    pub(super) fn fail(error: impl Into<String>) -> Self {
        Self { error: Some(error.into()), ..Self::default() }
    }
    /// Adds an Event.
    pub(super) fn telling(mut self, told: Told) -> Self {
        self.told.push(told);
        self
    }
    /// Adds an Event if there is a write.
    pub(super) fn telling_of_write(self, told: Told) -> Self {
        if self.write.is_some() { self.telling(told) } else { self }
    }
}
