//! Tests of the verdict of the audit.

use indexmap::IndexMap;

use super::*;
use crate::testing;
use flagperf_core::event::EngineFacts;
use flagperf_core::measure::Measurement;
use flagperf_core::metric::{Agreement, OutputAgreement};
use flagperf_core::precision::Precision;
use flagperf_core::step::{Phase, Step};
use flagperf_core::units::Bytes;

fn audit() -> AuditReport {
    let jitter = |scale: f64| (0..20).map(|i| Seconds(scale * (1.0 + 0.1 * f64::from(i % 5)))).collect::<Vec<_>>();
    let figures = OutputAgreement { cosine: Some(1.0), ..OutputAgreement::default() };
    AuditReport {
        after_pass: (0..20).map(|group| group / 4).collect(),
        measured_s: jitter(0.01),
        pass_s: vec![Seconds(0.012); 20],
        repeated_s: jitter(0.01),
        fresh_s: jitter(0.01),
        uniform_s: jitter(0.01),
        changes: changes(1.0),
        permuted: IndexMap::from([("output".to_owned(), PassDifference::default())]),
        fresh: Some(Agreement { outputs: IndexMap::from([("output".to_owned(), figures)]), ..Agreement::default() }),
        nearest: IndexMap::new(),
        unseen: None,
        changed_model: None,
    }
}

/// Returns that fresh inputs changed the output by this share of its norm.
fn changes(relative_l2: f64) -> IndexMap<String, PassDifference> {
    IndexMap::from([("output".to_owned(), PassDifference { relative_l2, ..PassDifference::default() })])
}

fn inference(audit: Option<AuditReport>) -> PhaseRecord {
    let measured = vec![Measurement { steps: 1000, ..testing::measurement(Step::Inference) }];
    let engine = Some(EngineFacts { name: "chip".into(), ..EngineFacts::default() });
    let memory_bytes_max = Some(Bytes(1));
    PhaseRecord { audit, engine, measured, memory_bytes_max, ..PhaseRecord::new(Phase::Infer) }
}

fn judge(audit: Option<AuditReport>, cost: InputCost) -> AuditCheck {
    AuditCheck::judge(&[inference(audit)], &AgreementLimits::default_for(Precision::Fp32), cost, &Accuracy::default())
}

fn failures(change: impl FnOnce(&mut AuditReport)) -> Vec<String> {
    let mut changed = audit();
    change(&mut changed);
    judge(Some(changed), InputCost::Fixed).failures
}

fn scaled(times: &mut [Seconds], factor: f64) {
    times.iter_mut().for_each(|time| time.0 *= factor);
}

#[test]
fn an_engine_that_computes_is_exact_or_within_tolerance() {
    let judged = judge(Some(audit()), InputCost::Fixed);
    assert_eq!((judged.verdict, judged.failures, judged.notes), (AuditVerdict::Exact, vec![], vec![]));
    let mut rounding = audit();
    rounding.permuted[0].relative_l2 = 1e-6;
    assert_eq!(judge(Some(rounding), InputCost::Fixed).verdict, AuditVerdict::WithinTolerance);
    assert_eq!(judge(None, InputCost::Fixed).failures, ["inference was measured, but its audit is missing"]);
    let cut_off = PhaseRecord { memory_bytes_max: None, ..inference(None) };
    let limits = AgreementLimits::default_for(Precision::Fp32);
    let judged = AuditCheck::judge(&[cut_off], &limits, InputCost::Fixed, &Accuracy::default());
    assert_eq!((judged.verdict, judged.failures), (AuditVerdict::NotAudited, vec![]));
    assert_eq!(
        AuditCheck::judge(&[], &AgreementLimits::default_for(Precision::Fp32), InputCost::Fixed, &Accuracy::default())
            .verdict,
        AuditVerdict::NotAudited
    );
    let idle = Some(EngineFacts { name: "null".into(), ..EngineFacts::default() });
    let validation = PhaseRecord { engine: idle, ..PhaseRecord::new(Phase::Validate) };
    let zeros = AuditReport { changes: changes(0.0), ..audit() };
    let inference = inference(Some(zeros));
    let judged = AuditCheck::judge(
        &[validation, inference],
        &AgreementLimits::default_for(Precision::Fp32),
        InputCost::Fixed,
        &Accuracy::default(),
    );
    assert_eq!(judged.notes, ["outputs are not judged: the framework computes nothing (engine `null`)"]);
    assert!(judged.failures.is_empty());
}

#[test]
fn fresh_inputs_that_take_longer_reveal_kept_results() {
    let found = failures(|audit| scaled(&mut audit.fresh_s, 1.8));
    let expected = "inputs that the engine had not seen took 1.80x as long as inputs that it had run before (20 of 20 \
                    pairs): does it keep results, or was the machine busy?";
    assert_eq!(found[0], expected);
    assert!(failures(|audit| scaled(&mut audit.fresh_s, 1.05)).is_empty(), "below the ratio");
    assert!(failures(|audit| scaled(&mut audit.fresh_s[..8], 1.8)).is_empty(), "8 of 20 pairs may be chance");
    let mut some = audit();
    scaled(&mut some.fresh_s[..16], 1.3);
    let judged = judge(Some(some), InputCost::Fixed);
    assert_eq!(judged.failures.len(), 0, "16 of 20 pairs, a small difference");
    let missed = "the times of the audit could reveal only results that were kept in 30 % of the steps or more (official: in 20 %): \
                  increase `repeat`, or `batch_size` if steps are short";
    assert_eq!(judged.doubts[1..], [missed]);
    let mut slow = audit();
    scaled(&mut slow.fresh_s, 1.8);
    let judged = judge(Some(slow), InputCost::Variable);
    assert_eq!(
        (judged.notes, judged.failures),
        (vec!["times of other inputs are not judged: `input_cost` is `variable`".to_owned()], vec![])
    );
    let mut kept = audit();
    scaled(&mut kept.fresh_s, 18.0);
    let judged = judge(Some(kept), InputCost::Variable);
    let expected = "inputs that the engine had not seen took 18.00x as long as inputs that it had run before (20 of 20 pairs), which no \
                    difference of their cost explains: does it keep results?";
    assert_eq!(judged.failures, [expected]);
}

#[test]
fn a_uniform_batch_that_is_faster_reveals_skipped_samples() {
    let found = failures(|audit| scaled(&mut audit.uniform_s, 0.5));
    assert!(
        found[0].starts_with("different samples took 2.00x as long as one sample in every row (20 of"),
        "{found:?}"
    );
}

#[test]
fn answers_of_variable_length_may_depend_on_a_tie_and_on_their_row() {
    let judged = |mismatches: f64, permuted: f64| {
        let mut audit = audit();
        audit.fresh.as_mut().unwrap().outputs[0].mismatches = Some(mismatches);
        audit.permuted[0].mismatches = Some(permuted);
        (judge(Some(audit.clone()), InputCost::Variable), judge(Some(audit), InputCost::Fixed))
    };
    let (variable, fixed) = judged(0.4, 1.0);
    assert_eq!((variable.failures.len(), fixed.failures.len()), (0, 2));
    assert!(variable.notes.iter().any(|note| note.contains("in another order")), "{variable:?}");
    let (variable, _) = judged(0.9, 0.0);
    assert!(variable.failures[0].contains("`mismatches` is 9.00e-1, the limit is 5.00e-1"), "{variable:?}");
}

#[test]
fn a_few_pairs_show_only_large_differences_and_two_none() {
    let judged = |pairs: usize, factor: f64| {
        let mut few = audit();
        few.fresh_s.truncate(pairs);
        scaled(&mut few.fresh_s, factor);
        judge(Some(few), InputCost::Fixed)
    };
    let text = |pairs| {
        format!("the times of only {pairs} pairs of steps were compared (official: at least 10): increase `repeat`")
    };
    assert_eq!((judged(3, 1.2).failures, judged(3, 1.2).doubts), (vec![], vec![text(3)]));
    assert!(judged(3, 10.0).failures[0].ends_with("(3 of 3 pairs): does it keep results, or was the machine busy?"));
    let two = judged(2, 10.0);
    assert_eq!(two.notes, ["times of fresh inputs are not judged: 2 of at least 3 pairs"]);
    assert_eq!((two.failures, two.doubts), (vec![], vec![text(2)]));
}

#[test]
fn a_few_steps_beside_other_programs_are_no_failure() {
    let judged = |fresh_s: &[f64], repeated_s: &[f64], uniform_s: &[f64]| {
        let seconds = |times: &[f64]| times.iter().map(|time| Seconds(*time)).collect::<Vec<_>>();
        let mut busy = audit();
        (busy.fresh_s, busy.repeated_s, busy.uniform_s) = (seconds(fresh_s), seconds(repeated_s), seconds(uniform_s));
        busy.measured_s = seconds(repeated_s);
        busy.pass_s = seconds(fresh_s);
        busy.after_pass = vec![0; fresh_s.len()];
        judge(Some(busy), InputCost::Fixed)
    };
    // Steps of ResNet-50 on two processors: 0.18 s alone, twice or three times as long beside other programs.
    let (alone, beside) = ([0.183, 0.187, 0.184], [0.418, 0.360, 0.354]);
    for busy in [judged(&beside, &alone, &alone), judged(&beside, &beside, &alone)] {
        assert_eq!(busy.failures, [""; 0]);
        assert!(
            busy.doubts
                .iter()
                .any(|doubt| doubt.ends_with("(3 of 3 pairs): does it keep results, or was the machine busy?")
                    || doubt.contains("as long as one sample in every row (3 of 3 pairs)")),
            "{busy:?}"
        );
    }
}

#[test]
fn results_kept_for_half_of_the_steps_are_found() {
    let found = failures(|audit| {
        for times in [&mut audit.repeated_s, &mut audit.measured_s] {
            times.iter_mut().skip(1).step_by(2).for_each(|time| time.0 = 1e-4);
        }
        scaled(&mut audit.pass_s, 0.505);
    });
    assert!(found[0].starts_with("inputs that the engine had not seen took 1.98x"), "{found:?}");
    assert!(found[1].starts_with("fresh inputs took 1.98x"), "{found:?}");
}

#[test]
fn results_kept_for_a_quarter_of_the_batches_by_an_engine_that_computes_in_the_audit_are_a_doubt() {
    let mut kept = audit();
    scaled(&mut kept.pass_s, 0.8);
    let judged = judge(Some(kept), InputCost::Fixed);
    let text = "fresh inputs took 1.25x as long in the audit as the batches in the passes (5 of 5 passes)";
    assert_eq!((judged.failures.len(), judged.doubts), (0, vec![text.to_owned()]));
}

#[test]
fn an_audit_whose_inputs_hardly_change_the_outputs_proves_nothing() {
    let judged = |change: f64, variation: Option<f64>| {
        let mut audit = AuditReport { changes: changes(change), ..audit() };
        audit.fresh.as_mut().unwrap().outputs[0].variation = variation;
        judge(Some(audit), InputCost::Fixed)
    };
    let small = judged(2e-3, None);
    let text = "the audit proves nothing: fresh inputs changed output `output` by 2.00e-3, and the limit is 1.00e-3";
    assert_eq!((small.failures.len(), small.doubts), (0, vec![text.to_owned()]));
    assert!(judged(4e-3, None).doubts.is_empty());
    assert!(judged(2e-3, Some(0.1)).doubts.is_empty(), "the correlation over the samples shows it");
    let constant = judged(0.0, None);
    assert_eq!((constant.failures.len(), constant.doubts.len()), (0, 1), "validation returned the same");
}

#[test]
fn an_audit_whose_outputs_are_near_those_of_other_samples_proves_nothing() {
    let judged = |relative_l2: f64| {
        let near = OutputAgreement { relative_l2, cosine: Some(1.0), ..OutputAgreement::default() };
        judge(Some(AuditReport { nearest: [("output".to_owned(), near)].into(), ..audit() }), InputCost::Fixed)
    };
    let text = "the audit proves nothing: stored outputs of the nearest other samples would differ from output `output` of fresh \
                inputs by 5.00e-4, and the limit is 1.00e-3";
    assert_eq!((judged(5e-4).failures.len(), judged(5e-4).doubts), (0, vec![text.to_owned()]));
    assert!(judged(2e-3).doubts.is_empty());
}

#[test]
fn times_of_very_short_steps_are_not_judged() {
    let mut short = audit();
    for times in
        [&mut short.measured_s, &mut short.pass_s, &mut short.repeated_s, &mut short.fresh_s, &mut short.uniform_s]
    {
        scaled(times, 0.01);
    }
    scaled(&mut short.fresh_s, 3.0);
    scaled(&mut short.uniform_s, 0.3);
    let judged = judge(Some(short), InputCost::Fixed);
    let doubt = "the times of fresh inputs are not judged: a step takes 0.342 ms, and differences of less than 0.5 ms may be due \
                 to scheduling";
    assert_eq!((judged.failures, judged.doubts), (vec![], vec![doubt.to_owned()]));
}

#[test]
fn delays_of_a_few_fresh_inputs_on_a_busy_machine_are_no_failure() {
    let mut delayed = audit();
    for times in [&mut delayed.measured_s, &mut delayed.pass_s, &mut delayed.repeated_s, &mut delayed.fresh_s] {
        *times = vec![Seconds(2.5e-4); 50];
    }
    delayed.uniform_s = Vec::new();
    delayed.after_pass = (0..50).map(|group| group % 8).collect();
    for times in [&mut delayed.fresh_s, &mut delayed.repeated_s] {
        times.iter_mut().take(6).for_each(|time| time.0 = 1e-2);
    }
    let judged = judge(Some(delayed), InputCost::Fixed);
    let text = "the times of fresh inputs are not judged: a step takes 0.250 ms, and differences of less than 0.5 ms may be due \
                to scheduling";
    assert_eq!((judged.failures.len(), judged.doubts), (0, vec![text.to_owned()]));
}

#[test]
fn ticks_of_the_scheduler_in_some_short_steps_are_no_failure() {
    let mut delayed = audit();
    for times in [
        &mut delayed.measured_s,
        &mut delayed.pass_s,
        &mut delayed.repeated_s,
        &mut delayed.fresh_s,
        &mut delayed.uniform_s,
    ] {
        *times = vec![Seconds(2.5e-4); 50];
    }
    delayed.after_pass = (0..50).map(|group| group / 7).collect();
    for (of_fresh, of_repeated, delay) in [(5, 7, 4e-3), (3, 10, 8e-3)] {
        let mut delayed = delayed.clone();
        delayed.fresh_s.iter_mut().step_by(of_fresh).for_each(|time| time.0 += delay);
        delayed.repeated_s.iter_mut().step_by(of_repeated).for_each(|time| time.0 += delay);
        let judged = judge(Some(delayed), InputCost::Fixed);
        assert_eq!(judged.failures, [""; 0]);
        assert!(!judged.doubts.is_empty());
    }
}

#[test]
fn an_engine_that_is_slower_in_the_audit_than_in_the_passes_fails() {
    let slower = |factor, passes| {
        let mut audit = audit();
        audit.after_pass.iter_mut().for_each(|pass| *pass %= passes);
        for times in [&mut audit.repeated_s, &mut audit.fresh_s, &mut audit.uniform_s] {
            scaled(times, factor);
        }
        judge(Some(audit), InputCost::Fixed)
    };
    assert!(slower(1.05, 5).doubts.is_empty());
    let text = |ratio: &str, pairs: &str| {
        format!("fresh inputs took {ratio}x as long in the audit as the batches in the passes ({pairs})")
    };
    assert_eq!(slower(1.4, 5).doubts, [text("1.40", "5 of 5 passes")]);
    let two = [text("3.00", "20 of 20 pairs")];
    assert_eq!(slower(3.0, 2).doubts, two, "the machine may have been slower after two passes");
    let expected = format!(
        "{}: does the engine compute less, or before the step begins, when it is measured?",
        text("3.00", "5 of 5 passes")
    );
    assert_eq!(slower(3.0, 5).failures, [expected]);
}

#[test]
fn with_changed_weights_outputs_and_accuracy_must_change_and_the_time_must_not() {
    let judged = |change: &dyn Fn(&mut ChangedModelReport)| {
        let AuditReport { measured_s, .. } = audit();
        let metrics = |top1: f64| IndexMap::from([("top1".to_owned(), top1)]);
        let mut changed = ChangedModelReport {
            steps: 20,
            core_s: measured_s.clone(),
            measured_s,
            accuracy: metrics(0.1),
            ..ChangedModelReport::default()
        };
        change(&mut changed);
        let accuracy =
            Accuracy { verdict: Verdict::Met, target: metrics(0.7), inference: metrics(0.8), ..Accuracy::default() };
        let report = AuditReport { changed_model: Some(changed), ..audit() };
        let limits = AgreementLimits::default_for(Precision::Fp32);
        AuditCheck::judge(&[inference(Some(report))], &limits, InputCost::Fixed, &accuracy).failures.join("; ")
    };
    assert_eq!(judged(&|_| {}), "");
    assert!(judged(&|changed| changed.unchanged_steps = 3).starts_with("3 of 20 steps returned the same outputs"));
    let same = judged(&|changed| changed.accuracy[0] = 0.8);
    assert!(same.starts_with("with changed weights, `top1` is 0.8000 (otherwise 0.8000)"), "{same}");
    let slow = |factor| judged(&|changed| scaled(&mut changed.core_s, factor));
    assert_eq!(slow(3.0), "", "the machine may have been busy in one of the two passes");
    assert!(slow(10.0).starts_with("with changed weights, a step took 10.00x as long (20 of 20 pairs)"));
}

#[test]
fn wrong_outputs_of_fresh_inputs_fail() {
    let found = failures(|audit| audit.fresh.as_mut().unwrap().outputs[0].relative_l2 = 0.5);
    assert!(
        found[0].starts_with("output `output` of inputs that exist in no other run: `relative_l2` is"),
        "{found:?}"
    );
    let found = failures(|audit| (audit.changes, audit.fresh) = (changes(0.0), None));
    assert_eq!(found, ["no output changed with the inputs"]);
    let found = failures(|audit| audit.permuted[0].relative_l2 = f64::NAN);
    assert!(found[0].starts_with("output `output` differs by NaN (limit: 2.00e-3) when the samples"), "{found:?}");
}
