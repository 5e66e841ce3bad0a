//! The things that CRI names, and their records on the disk.

mod disk;
pub(crate) mod filter;
mod index;
mod record;

pub(crate) use self::disk::Records;
pub(crate) use self::index::{FindError, Index, Reserved};
pub(crate) use self::record::{
    ContainerPhase, ContainerRecord, SandboxPhase, SandboxRecord, container_name, sandbox_name,
};
