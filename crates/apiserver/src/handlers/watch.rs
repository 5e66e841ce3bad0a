//! Watches.

use std::time::Duration;

use api::Status;
use storage::{WatchOptions, WatchStart};

use super::scope::Scope;
use crate::catalog::unreadable::transforming;
use crate::options::ListOptions;
use crate::outcome::Outcome;
use crate::select::Selection;
use crate::watch::{Begun, WatchSource};

/// Starts a watch.
pub(crate) async fn watch(scope: &Scope<'_>, options: ListOptions) -> Result<Outcome, Status> {
    let (stored, objects) = (scope.stored, &scope.handlers.objects);
    let selection = Selection::new(
        (scope.catalog, scope.resource),
        scope.namespace,
        scope.name(),
        &options.label_selector,
        &options.field_selector,
    )?;
    let revision = options.revision()?;
    let initial = options.initial_events == Some(true);
    if options.resource_version.is_empty() {
        objects.fresh(&[stored.id]).await?;
    }
    objects.reached(stored.id, if initial { revision } else { 0 }).await?;
    let start = if initial {
        WatchStart::Now
    } else if revision == 0 {
        WatchStart::After(objects.store.current(stored.id))
    } else {
        WatchStart::After(revision)
    };
    let watcher = objects.store.watch(
        stored.id,
        selection.scope.clone(),
        start,
        WatchOptions { progress: options.bookmarks, ..WatchOptions::default() },
    );
    let timeout = match options.timeout {
        Some(t) if t > 0 => Duration::from_secs(t as u64),
        _ => scope.handlers.min_request_timeout.mul_f64(1.0 + fastrand::f64()),
    };
    // A write from before the watcher came has ended nobody's watch.
    let after = if let WatchStart::After(revision) = start { revision } else { 0 };
    let watcher = match watcher {
        Ok(watcher) => match objects.store.unreadable(stored.id, &selection.scope, after) {
            Some(bad) => Err(Box::new(transforming(&bad))),
            None => Ok(watcher),
        },
        // The watch itself begins well: clients read this error as its first event.
        Err(compacted) => {
            let message = format!("too old resource version: {revision} ({})", compacted.oldest);
            Err(Box::new(Status::expired(message)))
        }
    };
    let begun = Begun { selection, watcher, bookmarks: options.bookmarks, initial, timeout };
    // The watches of a definition end when it changes.
    let ends = scope.resource.custom.as_ref().map_or(&scope.handlers.shutdown, |custom| &custom.ended);
    let source = WatchSource::new(scope.resource, begun, ends);
    Ok(Outcome::Watch(Box::new(source)))
}
