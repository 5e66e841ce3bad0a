//! `io.k8s.api.batch.v1`

use super::core_v1;
use super::meta_v1;
use crate::view::prelude::*;

view! { CronJob cron_job 233 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: CronJobSpec<'a>;
    4 STATUS status: CronJobStatus<'a>;
} }

view! { CronJobList cron_job_list 234 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, CronJob<'a>>;
} }

view! { CronJobSpec cron_job_spec 235 {
    0 SCHEDULE schedule: &'a str;
    1 TIME_ZONE time_zone: Option<&'a str>;
    2 STARTING_DEADLINE_SECONDS starting_deadline_seconds: Option<i64>;
    3 CONCURRENCY_POLICY concurrency_policy: &'a str;
    4 SUSPEND suspend: Option<bool>;
    5 JOB_TEMPLATE job_template: JobTemplateSpec<'a>;
    6 SUCCESSFUL_JOBS_HISTORY_LIMIT successful_jobs_history_limit: Option<i64>;
    7 FAILED_JOBS_HISTORY_LIMIT failed_jobs_history_limit: Option<i64>;
} }

view! { CronJobStatus cron_job_status 236 {
    0 ACTIVE active: ListView<'a, core_v1::ObjectReference<'a>>;
    1 LAST_SCHEDULE_TIME last_schedule_time: Option<&'a str>;
    2 LAST_SUCCESSFUL_TIME last_successful_time: Option<&'a str>;
} }

view! { Job job 237 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ObjectMeta<'a>;
    3 SPEC spec: JobSpec<'a>;
    4 STATUS status: JobStatus<'a>;
} }

view! { JobCondition job_condition 238 {
    0 TYPE type_: &'a str;
    1 STATUS status: &'a str;
    2 LAST_PROBE_TIME last_probe_time: &'a str;
    3 LAST_TRANSITION_TIME last_transition_time: &'a str;
    4 REASON reason: &'a str;
    5 MESSAGE message: &'a str;
} }

view! { JobList job_list 239 {
    0 KIND kind: &'a str;
    1 API_VERSION api_version: &'a str;
    2 METADATA metadata: meta_v1::ListMeta<'a>;
    3 ITEMS items: ListView<'a, Job<'a>>;
} }

view! { JobSpec job_spec 240 {
    0 PARALLELISM parallelism: Option<i64>;
    1 COMPLETIONS completions: Option<i64>;
    2 ACTIVE_DEADLINE_SECONDS active_deadline_seconds: Option<i64>;
    3 POD_FAILURE_POLICY pod_failure_policy: Option<PodFailurePolicy<'a>>;
    4 SUCCESS_POLICY success_policy: Option<SuccessPolicy<'a>>;
    5 BACKOFF_LIMIT backoff_limit: Option<i64>;
    6 BACKOFF_LIMIT_PER_INDEX backoff_limit_per_index: Option<i64>;
    7 MAX_FAILED_INDEXES max_failed_indexes: Option<i64>;
    8 SELECTOR selector: Option<meta_v1::LabelSelector<'a>>;
    9 MANUAL_SELECTOR manual_selector: Option<bool>;
    10 TEMPLATE template: core_v1::PodTemplateSpec<'a>;
    11 TTL_SECONDS_AFTER_FINISHED ttl_seconds_after_finished: Option<i64>;
    12 COMPLETION_MODE completion_mode: Option<&'a str>;
    13 SUSPEND suspend: Option<bool>;
    14 POD_REPLACEMENT_POLICY pod_replacement_policy: Option<&'a str>;
    15 MANAGED_BY managed_by: Option<&'a str>;
} }

view! { JobStatus job_status 241 {
    0 CONDITIONS conditions: ListView<'a, JobCondition<'a>>;
    1 START_TIME start_time: Option<&'a str>;
    2 COMPLETION_TIME completion_time: Option<&'a str>;
    3 ACTIVE active: i64;
    4 SUCCEEDED succeeded: i64;
    5 FAILED failed: i64;
    6 TERMINATING terminating: Option<i64>;
    7 COMPLETED_INDEXES completed_indexes: &'a str;
    8 FAILED_INDEXES failed_indexes: Option<&'a str>;
    9 UNCOUNTED_TERMINATED_PODS uncounted_terminated_pods: Option<UncountedTerminatedPods<'a>>;
    10 READY ready: Option<i64>;
} }

view! { JobTemplateSpec job_template_spec 242 {
    0 METADATA metadata: meta_v1::ObjectMeta<'a>;
    1 SPEC spec: JobSpec<'a>;
} }

view! { PodFailurePolicy pod_failure_policy 243 {
    0 RULES rules: ListView<'a, PodFailurePolicyRule<'a>>;
} }

view! { PodFailurePolicyOnExitCodesRequirement pod_failure_policy_on_exit_codes_requirement 244 {
    0 CONTAINER_NAME container_name: Option<&'a str>;
    1 OPERATOR operator: &'a str;
    2 VALUES values: ListView<'a, i64>;
} }

view! { PodFailurePolicyOnPodConditionsPattern pod_failure_policy_on_pod_conditions_pattern 245 {
    0 TYPE type_: &'a str;
    1 STATUS status: &'a str;
} }

view! { PodFailurePolicyRule pod_failure_policy_rule 246 {
    0 ACTION action: &'a str;
    1 ON_EXIT_CODES on_exit_codes: Option<PodFailurePolicyOnExitCodesRequirement<'a>>;
    2 ON_POD_CONDITIONS on_pod_conditions: ListView<'a, PodFailurePolicyOnPodConditionsPattern<'a>>;
} }

view! { SuccessPolicy success_policy 247 {
    0 RULES rules: ListView<'a, SuccessPolicyRule<'a>>;
} }

view! { SuccessPolicyRule success_policy_rule 248 {
    0 SUCCEEDED_INDEXES succeeded_indexes: Option<&'a str>;
    1 SUCCEEDED_COUNT succeeded_count: Option<i64>;
} }

view! { UncountedTerminatedPods uncounted_terminated_pods 249 {
    0 SUCCEEDED succeeded: ListView<'a, &'a str>;
    1 FAILED failed: ListView<'a, &'a str>;
} }
