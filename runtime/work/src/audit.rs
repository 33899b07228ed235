//! The audit: steps after passes that reveal an engine that does not compute what it returns. They call the same functions
//! as measured steps, so an engine cannot tell them apart.

use indexmap::IndexMap;

use super::order::SampleOrder;
use super::pass_comparison::{DifferenceMeter, compare_tensors};
use flagperf_core::measure::AuditReport;
use flagperf_core::tensor::Tensor;
use flagperf_core::units::Seconds;
use flagperf_data::{BatchRequest, Loader, Perturbation};

/// Largest number of groups of steps.
const GROUPS_MAX: usize = 50;
/// Smallest number of groups of steps: fewer could not be compared.
const GROUPS_MIN: usize = 3;
/// Share of the time of all passes that the audit may take.
const TIME_SHARE: f64 = 0.1;
/// Time that the audit may take even if its share is shorter.
const TIME_MIN: Seconds = Seconds(2.0);
/// Largest number of batches whose fresh inputs validation runs too.
const COMPARED_MAX: usize = 4;
/// Batches of a pass for each batch whose fresh inputs validation runs too.
const BATCHES_PER_COMPARED: usize = 8;

/// Returns the number of batches whose fresh inputs validation runs too.
pub fn compared_batches(batches: usize) -> usize {
    (batches / BATCHES_PER_COMPARED).clamp(1, COMPARED_MAX)
}

/// Returns how many groups of steps fit into the time of the audit: more than `compared`, and at least [`GROUPS_MIN`]. `core` is the core time of the
/// first of `passes` passes, which had `steps` steps.
pub fn group_count(core: Seconds, steps: usize, passes: u32, compared: usize) -> usize {
    // One more than validation runs: nobody else has computed its fresh inputs.
    let least = (compared + 1).max(GROUPS_MIN);
    let step = core.0 / steps.max(1) as f64;
    let time = (TIME_SHARE * core.0 * f64::from(passes)).max(TIME_MIN.0);
    // A group has up to three steps.
    let groups = (time / (3.0 * step.max(1e-9))).min(GROUPS_MAX as f64) as usize;
    groups.clamp(least, GROUPS_MAX.max(least))
}

/// The options of an audit.
#[derive(Clone, Copy, Debug)]
pub struct AuditOptions {
    /// Number of passes.
    pub passes: u32,
    /// Number of groups of steps.
    pub groups: usize,
    /// Number of groups whose fresh inputs validation runs too.
    pub compared: usize,
    /// Whether only fresh inputs run, because the phase is not audited.
    pub fresh_only: bool,
    /// Whether every input takes the same time, whatever its content.
    pub has_fixed_cost: bool,
}

/// The steps of an audit, and what they have shown so far.
#[derive(Debug)]
pub struct Audit {
    options: AuditOptions,
    /// The steps that are still to run after the current pass, the next one last.
    steps: Vec<AuditStep>,
    group: GroupOutputs,
    changes: IndexMap<String, DifferenceMeter>,
    report: AuditReport,
}

#[derive(Clone, Debug)]
struct AuditStep {
    group: usize,
    kind: StepKind,
    request: BatchRequest,
}

#[derive(Clone, Debug, PartialEq)]
enum StepKind {
    Repeated,
    Fresh {
        is_compared: bool,
    },
    Uniform,
    /// Row `i` is row `rows[i]` of the batch.
    Permuted {
        rows: Vec<usize>,
    },
}

/// The outputs of the steps of one group.
#[derive(Debug, Default)]
struct GroupOutputs {
    repeated: Option<Outputs>,
    fresh: Option<Outputs>,
    permuted: Option<(Vec<usize>, Outputs)>,
}

type Outputs = Vec<(String, Tensor)>;

/// The outputs of fresh inputs.
#[derive(Debug)]
pub struct FreshOutputs {
    /// Whether validation runs the same inputs.
    pub is_compared: bool,
    /// Requests the inputs.
    pub request: BatchRequest,
    /// The outputs by name, one row per sample.
    pub outputs: Vec<(String, Tensor)>,
}

impl Audit {
    /// Creates an audit.
    pub fn new(options: AuditOptions) -> Self {
        let (group, changes, report) = (GroupOutputs::default(), IndexMap::new(), AuditReport::default());
        Audit { options, steps: Vec::new(), group, changes, report }
    }

    /// Returns whether steps run after a pass.
    pub fn is_due(&self, pass: u32, order: &SampleOrder) -> bool {
        self.groups_after(pass, order).next().is_some()
    }

    /// Returns the groups that run after a pass.
    fn groups_after(&self, pass: u32, order: &SampleOrder) -> impl Iterator<Item = usize> + use<> {
        let AuditOptions { passes, groups, .. } = self.options;
        let order = *order;
        let drawn = move |group: usize| order.choose("audited pass", group as u64, passes.max(1) as usize);
        (0..groups).filter(move |group| drawn(*group) == pass as usize)
    }

    /// Plans the steps after a pass and returns their batches in order. `measured` returns the core time of a batch in
    /// that pass, in which a full batch took `mean`.
    pub fn start(
        &mut self,
        pass: u32,
        order: &SampleOrder,
        loader: &Loader,
        measured: impl Fn(usize) -> Seconds,
        mean: Seconds,
    ) -> Vec<BatchRequest> {
        // Groups have different batches, as far as there are enough: validation's outputs are found by their samples.
        let batches = order.shuffle("audited batches", 0, full_batches(loader));
        for group in self.groups_after(pass, order) {
            let steps = group_steps(order, loader, (group, batches[group % batches.len()]), self.options);
            self.report.after_pass.push(pass);
            self.report.pass_s.push(mean);
            self.report.measured_s.extend(steps.first().map(|step| measured(step.request.number as usize)));
            self.steps.extend(steps);
        }
        self.steps.reverse();
        self.steps.iter().rev().map(|step| step.request.clone()).collect()
    }

    /// Adds the core time and the outputs of the next step, one row per sample. Returns its request and the outputs if its inputs
    /// are fresh.
    pub fn add(&mut self, core: Seconds, outputs: Outputs) -> Option<FreshOutputs> {
        let AuditStep { group, kind, request } = self.steps.pop()?;
        let mut fresh = None;
        match kind {
            StepKind::Repeated => {
                self.report.repeated_s.push(core);
                self.group.repeated = Some(outputs);
            }
            StepKind::Fresh { is_compared } => {
                self.report.fresh_s.push(core);
                fresh = Some(FreshOutputs { is_compared, request, outputs: outputs.clone() });
                self.group.fresh = Some(outputs);
            }
            StepKind::Uniform => self.report.uniform_s.push(core),
            StepKind::Permuted { rows } => self.group.permuted = Some((rows, outputs)),
        }
        if self.steps.last().is_none_or(|next| next.group != group) {
            self.end_group();
        }
        fresh
    }

    /// Returns the observations.
    pub fn finish(self) -> AuditReport {
        let changes = self.changes.into_iter().map(|(name, meter)| (name, meter.finish()));
        AuditReport { changes: changes.collect(), ..self.report }
    }

    /// Compares the outputs of a group.
    fn end_group(&mut self) {
        let GroupOutputs { repeated, fresh, permuted } = std::mem::take(&mut self.group);
        let Some(repeated) = repeated else { return };
        for ((name, before), (_, after)) in repeated.iter().zip(fresh.iter().flatten()) {
            // An output whose size depends on the content has nothing to compare element by element.
            if before.shape() == after.shape() {
                self.changes.entry(name.clone()).or_default().add(before, after);
            }
        }
        let Some((rows, outputs)) = permuted else { return };
        for ((name, before), (_, after)) in repeated.iter().zip(&outputs) {
            // An output without a row per sample has no order that could be compared.
            if let Ok(expected) = before.take_rows(&rows)
                && before.shape().first() == Some(&rows.len())
            {
                self.report.permuted.insert(name.clone(), compare_tensors(&expected, after));
            }
        }
    }
}

/// Returns the steps of a group, which runs the batch `number`, in a random order.
fn group_steps(
    order: &SampleOrder,
    loader: &Loader,
    (group, number): (usize, usize),
    options: AuditOptions,
) -> Vec<AuditStep> {
    let samples = loader.samples(number);
    let step = |kind, samples: &[u64], perturbation| AuditStep {
        group,
        kind,
        request: BatchRequest { number: number as u64, samples: samples.into(), perturbation },
    };
    let perturbation = Perturbation::new(order.seed().derive("fresh inputs", group as u64));
    let mut steps = vec![step(StepKind::Fresh { is_compared: group < options.compared }, samples, Some(perturbation))];
    if options.fresh_only {
        return steps;
    }
    steps.push(step(StepKind::Repeated, samples, None));
    if options.has_fixed_cost && !loader.has_open_length() {
        let first = loader.samples(0);
        let sample = first[order.choose("uniform sample", 0, first.len())];
        steps.push(step(StepKind::Uniform, &vec![sample; samples.len()], None));
    }
    if group == 0 && samples.len() > 1 {
        let rows = cycle(&order.shuffle("permuted rows", 0, samples.len()));
        let permuted: Vec<u64> = rows.iter().map(|row| samples[*row]).collect();
        steps.push(step(StepKind::Permuted { rows }, &permuted, None));
    }
    let places = order.shuffle("audited group", group as u64, steps.len());
    places.into_iter().map(|place| steps[place].clone()).collect()
}

/// Returns the permutation that moves each of `places` to the next one: of two or more, none stays where it is.
fn cycle(places: &[usize]) -> Vec<usize> {
    let mut rows = vec![0; places.len()];
    for (place, next) in places.iter().zip(places.iter().cycle().skip(1)) {
        rows[*place] = *next;
    }
    rows
}

/// Returns the number of batches without padding, which come first; at least 1.
fn full_batches(loader: &Loader) -> usize {
    let batches = loader.batches() as usize;
    let is_last_full = loader.samples(batches - 1).len() == loader.samples(0).len();
    if is_last_full { batches } else { (batches - 1).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_row_stays_in_its_place() {
        assert_eq!(cycle(&[2, 0, 1]), [1, 2, 0]);
        assert_eq!(cycle(&[0, 1]), [1, 0]);
    }

    #[test]
    fn the_audit_takes_a_tenth_of_the_time_or_two_seconds() {
        let groups = |step: f64, passes, compared| group_count(Seconds(step * 10.0), 10, passes, compared);
        assert_eq!(groups(0.001, 10, 1), 50, "short steps: the largest number");
        assert_eq!(groups(0.1, 10, 1), 6, "two seconds");
        assert_eq!(groups(1.0, 100, 1), 33);
        assert_eq!(groups(1.0, 10, 1), 3);
        assert_eq!(groups(60.0, 1, 1), 3, "so many that times can be compared");
        assert_eq!(groups(60.0, 1, 4), 5, "what is compared with validation runs in any case, and one group more");
        assert_eq!((compared_batches(1), compared_batches(16), compared_batches(1000)), (1, 2, 4));
    }
}
