//! The flags of the election of one among several instances, by upstream's names.

use std::time::Duration;

use clap::{ArgAction, Args};
use client::Election;

use super::values::duration;

/// The flags of an election. `None` where the command line says nothing, so that a configuration file counts.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct Electing {
    /// Whether to work only when elected among several [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) leader_elect: Option<bool>,
    /// How long others respect a leader that does not renew [default: 15s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) leader_elect_lease_duration: Option<Duration>,
    /// How long a leader tries to renew before it gives up; less than the lease's duration [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) leader_elect_renew_deadline: Option<Duration>,
    /// Time between attempts [default: 2s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) leader_elect_retry_period: Option<Duration>,
    /// The type of the lock: leases [default: leases]
    #[arg(long, value_name = "TYPE")]
    pub(crate) leader_elect_resource_lock: Option<String>,
    /// The name of the Lease [default: that of the component]
    #[arg(long, value_name = "NAME")]
    pub(crate) leader_elect_resource_name: Option<String>,
    /// The namespace of the Lease [default: kube-system]
    #[arg(long, value_name = "NAME")]
    pub(crate) leader_elect_resource_namespace: Option<String>,
}

impl Electing {
    /// Whether there is an election, and puts what the flags say into it.
    pub(crate) fn configure(&self, election: &mut Election) -> bool {
        for (flag, time) in [
            (self.leader_elect_lease_duration, &mut election.lease),
            (self.leader_elect_renew_deadline, &mut election.renew),
            (self.leader_elect_retry_period, &mut election.retry),
        ] {
            *time = flag.unwrap_or(*time);
        }
        for (flag, name) in [
            (&self.leader_elect_resource_name, &mut election.name),
            (&self.leader_elect_resource_namespace, &mut election.namespace),
        ] {
            if let Some(given) = flag {
                name.clone_from(given);
            }
        }
        self.leader_elect.unwrap_or(true)
    }

    /// Puts what the flags say into a configuration of the scheduler; they count more than its file.
    pub(crate) fn apply(&self, said: &mut scheduler::config::document::LeaderElection) {
        said.leader_elect = self.leader_elect.unwrap_or(said.leader_elect);
        let text = |time: Duration| {
            let time = jiff::SignedDuration::try_from(time).unwrap_or(jiff::SignedDuration::MAX);
            api::time::format_duration(time).to_string()
        };
        for (flag, field) in [
            (self.leader_elect_lease_duration.map(text), &mut said.lease_duration),
            (self.leader_elect_renew_deadline.map(text), &mut said.renew_deadline),
            (self.leader_elect_retry_period.map(text), &mut said.retry_period),
            (self.leader_elect_resource_lock.clone(), &mut said.resource_lock),
            (self.leader_elect_resource_name.clone(), &mut said.resource_name),
            (self.leader_elect_resource_namespace.clone(), &mut said.resource_namespace),
        ] {
            if let Some(given) = flag {
                *field = given;
            }
        }
    }
}
