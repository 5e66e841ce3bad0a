//! When a write counts.

/// What an acknowledged write has behind it. At every level the end of the process alone, also by `kill -9`,
/// loses nothing, and what a crash of the machine leaves is a state that the store was in: later writes
/// are lost before earlier ones.
///
/// Where acknowledged writes may have been lost, the next start raises the revision far above all that were
/// given out and compacts below it: caches that saw what is lost get 410 and list anew, and no revision stands
/// for two states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// A write is synced to the disk before it is answered and before any reader or watcher sees it. Nothing
    /// acknowledged is ever lost by a crash of the process, of the system, or of the power.
    #[default]
    Synced,
    /// A write is answered once the operating system has it, and synced within a second. A crash of the system or
    /// of the power loses up to the last second of acknowledged writes.
    EverySecond,
    /// A write is answered once the operating system has it, which writes it to the disk when it likes. A crash of
    /// the system or of the power loses what was acknowledged in the last half minute or longer.
    Os,
}
