//! Tests of the figures of agreement and of their limits.

use super::*;

const LIMITS: AgreementLimits = AgreementLimits {
    relative_l2: 0.01,
    worst_sample: 0.1,
    cosine: 0.999,
    correlation: 0.7,
    variation: 0.001,
    mismatches: 0.2,
};

fn agreement(shape: [usize; 2], a: &[f32], b: &[f32]) -> OutputAgreement {
    let tensor = |values: &[f32]| Tensor::from_vec(shape, values.to_vec()).unwrap();
    let mut meter = AgreementMeter::default();
    assert!(meter.push(&tensor(a), &tensor(b)));
    meter.finish().unwrap()
}

#[test]
fn figures_of_known_errors_are_correct() {
    let agreement = agreement([2, 2], &[1.0, 2.0, 4.0, 3.0], &[1.5, 2.0, 4.0, 4.25]);
    assert_eq!((agreement.max_abs, agreement.mean_abs, agreement.median_abs), (1.25, 0.4375, 0.25));
    assert_eq!((agreement.max_rel, agreement.elements), (0.5, 4));
    assert_eq!(agreement.top1_agreement, Some(0.5));
    assert!(agreement.cosine.unwrap() > 0.98);
    assert!((agreement.relative_l2 - (1.8125f64 / 30.0).sqrt()).abs() < 1e-12);
    assert!((agreement.worst_sample - (1.5625f64 / 15.0).sqrt()).abs() < 1e-12);
}

#[test]
fn outputs_of_different_shapes_are_not_compared() {
    let a = Tensor::from_vec([1], vec![1.0f32]).unwrap();
    let b = Tensor::from_vec([2], vec![1.0f32, 2.0]).unwrap();
    let mut meter = AgreementMeter::default();
    assert!(!meter.push(&a, &b));
    assert_eq!(meter.finish(), None);
}

#[test]
fn nan_is_reported_and_exceeds_the_limits() {
    let agreement = agreement([1, 2], &[1.0, 2.0], &[f32::NAN, 2.0]);
    let text = serde_json::to_string(&agreement).unwrap();
    let read: OutputAgreement = serde_json::from_str(&text).unwrap();
    assert!(read.max_abs.is_nan() && read.relative_l2.is_nan() && read.worst_sample.is_nan());
    assert_eq!((read.cosine, read.non_finite), (None, 1));
    assert_eq!(LIMITS.violations(&read), ["1 element is NaN or infinite"]);
}

#[test]
fn outputs_of_zeros_exceed_every_limit() {
    let violations = LIMITS.violations(&agreement([2, 2], &[1.0, 2.0, 3.0, 4.0], &[0.0; 4]));
    assert_eq!(violations.len(), 4, "{violations:?}");
    assert_eq!(violations[2], "one side is all zero");
    assert_eq!(LIMITS.violations(&agreement([2, 2], &[0.0; 4], &[0.0; 4])), [""; 0]);
    assert_eq!(LIMITS.violations(&agreement([2, 2], &[0.0; 4], &[0.0, 0.0, 0.0, 1.0])).len(), 3);
}

#[test]
fn a_limit_that_a_case_sets_replaces_only_the_default_of_that_limit() {
    let default = AgreementLimits::default_for(Precision::Fp16);
    for (name, range) in AGREEMENT_LIMITS {
        let limits = default.with_overrides([(&(*name).to_owned(), range.start())].into_iter());
        assert_ne!(limits, default, "{name}");
    }
    let overridden = default.with_overrides([(&"cosine".to_owned(), &0.5)].into_iter());
    assert_eq!(overridden, AgreementLimits { cosine: 0.5, ..default });
}

#[test]
fn one_wrong_sample_among_many_correct_ones_exceeds_the_limit_of_the_worst_sample() {
    let a: Vec<f32> = (0..4096).map(|i| 1.0 + (i % 7) as f32).collect();
    let mut b = a.clone();
    b[8..10].copy_from_slice(&[3.0, 1.0]);
    let limits = AgreementLimits { relative_l2: 0.1, cosine: 0.99, ..LIMITS };
    let violations = limits.violations(&agreement([2048, 2], &a, &b));
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert!(violations[0].starts_with("`worst_sample` is "), "{violations:?}");
}

/// Returns the outputs of 16 samples: a large part common to all, and a part of the size `varying` that depends on
/// `own` of the sample.
fn samples(varying: f32, own: impl Fn(usize) -> usize) -> Vec<f32> {
    (0..16)
        .flat_map(|sample| (0..8).map(move |j| (sample, j)))
        .map(|(sample, j)| 10.0 + j as f32 + varying * ((own(sample) * 7 + j * 3) % 11) as f32)
        .collect()
}

#[test]
fn outputs_that_are_the_same_for_every_sample_exceed_the_limit_of_correlation() {
    let validation = samples(0.01, |sample| sample);
    let constant = agreement([16, 8], &validation, &samples(0.01, |_| 8));
    assert!(constant.relative_l2 < 0.005 && constant.worst_sample < 0.01 && constant.cosine.unwrap() > 0.9999);
    let expected = "`correlation` is 0.0000, the limit is 0.7: do the outputs depend on their sample?";
    assert_eq!(LIMITS.violations(&constant), [expected]);
    let swapped = LIMITS.violations(&agreement([16, 8], &validation, &samples(0.01, |sample| 15 - sample)));
    assert!(swapped.len() == 1 && swapped[0].starts_with("`correlation` is "), "{swapped:?}");
    assert_eq!(LIMITS.violations(&agreement([16, 8], &validation, &validation)), [""; 0]);
}

#[test]
fn a_meaningless_correlation_is_not_judged_and_the_reason_is_returned() {
    let (validation, constant) = (samples(1e-5, |sample| sample), samples(1e-5, |_| 8));
    let within_noise = agreement([16, 8], &validation, &constant);
    assert_eq!(LIMITS.violations(&within_noise), [""; 0]);
    let reason = LIMITS.not_judged(&within_noise).unwrap();
    assert!(
        reason.starts_with("`correlation` is not judged: `variation` is ") && reason.contains("1.00e-3"),
        "{reason}"
    );
    let alone = agreement([1, 8], &validation[..8], &validation[..8]);
    assert_eq!((alone.variation, alone.correlation), (None, None));
    let reason = LIMITS.not_judged(&alone).unwrap();
    assert_eq!(reason, "`correlation` is not judged: this requires two samples of the same shape");
    let judged = agreement([16, 8], &samples(0.01, |sample| sample), &samples(0.01, |sample| sample));
    assert_eq!(LIMITS.not_judged(&judged), None);
}

#[test]
fn integers_and_booleans_are_judged_by_the_share_of_elements_that_differ() {
    let pushed = |a: &Tensor, b: &Tensor| {
        let mut meter = AgreementMeter::default();
        assert!(meter.push(a, b));
        meter.finish().unwrap()
    };
    let tokens = |last: i64| Tensor::from_vec([2, 4], vec![50_000, 50_001, 3, 4, 50_000, 6, 7, last]).unwrap();
    // As one vector they hardly differ, although four of the eight elements do.
    let far = Tensor::from_vec([2, 4], vec![50_000i64, 50_001, 4, 3, 50_000, 7, 6, 8]).unwrap();
    let figures = pushed(&tokens(8), &far);
    assert!(figures.relative_l2 < 1e-4);
    assert_eq!(LIMITS.violations(&figures), ["`mismatches` is 5.00e-1, the limit is 2.00e-1"]);
    let near = pushed(&tokens(8), &tokens(9));
    assert_eq!((near.mismatches, LIMITS.violations(&near)), (Some(0.125), vec![]));
    let large = pushed(&tokens(1 << 60), &tokens((1 << 60) + 1));
    assert_eq!(large.mismatches, Some(0.125), "integers are not rounded to f64");
    let flags = |values: [bool; 4]| Tensor::from_bools([4], &values).unwrap();
    let rare = pushed(&flags([true, false, false, false]), &flags([false; 4]));
    assert_eq!((rare.mismatches, LIMITS.violations(&rare).len()), (Some(0.25), 1));
    assert_eq!(LIMITS.not_judged(&rare), None);
}

#[test]
fn zeros_of_either_sign_have_the_same_top_1() {
    assert_eq!(agreement([2, 2], &[-0.0, 0.0, 0.0, 0.0], &[0.0, -0.0, 0.0, -0.0]).top1_agreement, Some(1.0));
    assert_eq!(agreement([1, 3], &[-1.0, -0.0, 0.0], &[-1.0, 0.0, -0.0]).top1_agreement, Some(1.0));
}

#[test]
fn whole_numbers_and_booleans_that_do_not_vary_with_the_sample_are_not_judged() {
    let reason = |outputs: Tensor| {
        let mut meter = AgreementMeter::default();
        assert!(meter.push(&outputs, &outputs));
        let figures = meter.finish().unwrap();
        assert_eq!(LIMITS.violations(&figures), [""; 0]);
        LIMITS.not_judged(&figures)
    };
    let begin = "it is not judged whether the output depends on its sample: ";
    let same = Some(format!("{begin}validation's output is the same for every sample"));
    assert_eq!(reason(Tensor::from_vec([3, 2], vec![7i64, 8, 7, 8, 7, 8]).unwrap()), same);
    assert_eq!(reason(Tensor::from_bools([2, 1], &[true, true]).unwrap()), same);
    assert_eq!(reason(Tensor::from_vec([3], vec![0i32; 3]).unwrap()), same);
    let alone = Some(format!("{begin}this requires two samples of the same shape"));
    assert_eq!(reason(Tensor::from_vec([1, 2], vec![7u8, 8]).unwrap()), alone);
    assert_eq!(reason(Tensor::from_vec([3, 2], vec![7i64, 8, 7, 8, 7, 9]).unwrap()), None);
    assert_eq!(reason(Tensor::from_bools([2, 1], &[true, false]).unwrap()), None);
}
