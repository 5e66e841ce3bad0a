//! Which file systems the kubelet's directory, images and containers lie on, and what follows from it: the thresholds of
//! containers' layers, what is measured of a Pod, and what is removed before a Pod is.

use super::signal::Signal;
use super::threshold::{Amount, Threshold};

/// How the node's file systems lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Everything is on one.
    Single,
    /// Images and layers have one of their own.
    Images,
    /// Images have one of their own, layers lie with the kubelet's directory.
    Split,
    /// Layers alone have one of their own: upstream has no word for it, and takes it for [`Layout::Single`], but for
    /// thresholds, of which layers then have none.
    Layers,
}

/// A part of what a Pod takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The layers of its containers.
    Layers,
    /// Their logs.
    Logs,
    /// Its volumes that go with it.
    Volumes,
}

/// Things of the node that are removed before a Pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reclaim {
    /// Containers that have ended.
    Containers,
    /// Images that nobody uses.
    Images,
}

impl Layout {
    /// The layout, by whether images do not lie with the kubelet's directory, and layers not with images.
    pub(crate) fn of(dedicated_images: bool, split_containers: bool) -> Self {
        match (dedicated_images, split_containers) {
            (false, false) => Self::Single,
            (true, false) => Self::Images,
            (true, true) => Self::Split,
            (false, true) => Self::Layers,
        }
    }

    /// Whether images lie on a file system of their own.
    pub(crate) fn dedicated_images(self) -> bool {
        matches!(self, Self::Images | Self::Split)
    }

    /// The thresholds with those of layers, which are those of the file system that layers lie on: what was asked for
    /// them apart does not count, as upstream has it.
    pub(crate) fn with_layers(self, thresholds: &[Threshold]) -> Vec<Threshold> {
        let mut all = thresholds.to_vec();
        let (bytes, inodes) = match self {
            Self::Single | Self::Split => (Signal::NodeFs, Signal::NodeFsInodes),
            Self::Images => (Signal::ImageFs, Signal::ImageFsInodes),
            Self::Layers => return all,
        };
        for (signal, from) in [(Signal::ContainerFs, bytes), (Signal::ContainerFsInodes, inodes)] {
            for hard in [true, false] {
                let of = |wanted: Signal| {
                    // The last one counts, as upstream has it.
                    thresholds.iter().rposition(|t| t.signal == wanted && t.is_hard() == hard)
                };
                let found = of(from).and_then(|at| thresholds.get(at));
                let made = Threshold {
                    signal,
                    // A share of nothing is never reached.
                    value: found.map_or(Amount::Share(0.0), |t| t.value.clone()),
                    grace: found.map(|t| t.grace).unwrap_or_default(),
                    min_reclaim: found.and_then(|t| t.min_reclaim.clone()),
                };
                match of(signal).and_then(|at| all.get_mut(at)) {
                    Some(own) => *own = made,
                    None => all.push(made),
                }
            }
        }
        all
    }

    /// The parts of a Pod that count for a signal of a disk.
    pub(crate) fn measured(self, signal: Signal) -> &'static [Part] {
        let of_node = matches!(signal, Signal::NodeFs | Signal::NodeFsInodes);
        let of_images = matches!(signal, Signal::ImageFs | Signal::ImageFsInodes);
        match self {
            Self::Single | Self::Layers => &[Part::Layers, Part::Logs, Part::Volumes],
            Self::Images if of_node => &[Part::Logs, Part::Volumes],
            Self::Images => &[Part::Layers],
            // The room of images is nobody's.
            Self::Split if of_images => &[],
            Self::Split => &[Part::Logs, Part::Volumes, Part::Layers],
        }
    }

    /// The things that are removed at first for a signal.
    pub(crate) fn reclaims(self, signal: Signal) -> &'static [Reclaim] {
        let of_node = matches!(signal, Signal::NodeFs | Signal::NodeFsInodes);
        let of_images = matches!(signal, Signal::ImageFs | Signal::ImageFsInodes);
        if signal.condition() != super::signal::Condition::Disk {
            return &[];
        }
        match self {
            Self::Single | Self::Layers => &[Reclaim::Containers, Reclaim::Images],
            Self::Images if of_node => &[],
            Self::Images => &[Reclaim::Containers, Reclaim::Images],
            Self::Split if of_images => &[Reclaim::Images],
            Self::Split => &[Reclaim::Containers],
        }
    }
}
