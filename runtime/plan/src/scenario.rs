//! Checks of the scenario of a case.

use super::CaseSettings;
use super::planning::Planner;
use flagperf_config::{Finding, Parameters};
use flagperf_core::description::Delivery;

/// The key of the scenario.
const KEY: &str = "scenario";

impl Planner<'_> {
    /// Reports a scenario that cannot run: there is no inference, a query does not fit into a batch, or tokens have a bound and the
    /// engine has none. A query that waits for the answer to its predecessor is alone in its batch, whose other rows are computed and
    /// count for nothing; a server has no batches.
    pub(super) fn check_scenario(&mut self, settings: &CaseSettings, has_inference: bool) {
        let scenario = Parameters::from_values(&self.case.parameters).scenario;
        if !scenario.has_queries() {
            return;
        }
        let (kind, samples, batch) = (scenario.kind.name(), scenario.samples_per_query, settings.batch_size);
        let engine = self.compiler_entry().and_then(|entry| self.catalogue.engine(&entry.engine));
        let is_server = engine.is_some_and(|engine| engine.delivery == Delivery::Server);
        if !has_inference {
            let message = format!("`{KEY}: {kind}` has no effect: the case runs no inference");
            let hint = "remove it, or set `compiler` of a case that is not trained";
            self.add_error(KEY, Finding::unplaced(message).with_hint(hint));
        } else if scenario.bounds_tokens()
            // Only a sidecar itself knows whether it generates text.
            && engine.is_none_or(|engine| !engine.generates_text && engine.delivery != Delivery::Command)
        {
            let message =
                format!("`{KEY}: {kind}` bounds the times of tokens, which only an engine that generates text reports");
            let hint = "remove the bound, or set `compiler` to `openai` or a sidecar";
            self.add_error(KEY, Finding::unplaced(message).with_hint(hint));
        } else if is_server {
            // Each query is sent by itself.
        } else if samples > batch {
            let message = format!("`{KEY}: {kind}` has queries of {samples} samples, but `batch_size` is {batch}");
            let hint = format!("set `batch_size` to at least {samples}");
            self.add_error(KEY, Finding::unplaced(message).with_hint(hint));
        } else if scenario.kind.waits_for_answers() && samples < batch {
            let message = format!(
                "`{KEY}: {kind}` computes {samples} of {batch} rows of each batch for a query, and the others for nothing"
            );
            let finding = Finding::warning(self.origin(KEY), message);
            self.findings.push(finding.with_hint(format!("set `batch_size: {samples}`")));
        }
    }
}
