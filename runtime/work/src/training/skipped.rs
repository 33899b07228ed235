//! Updates that a training in fp16 skips because its gradients overflow.

/// Updates in a row that may be skipped. The scale of the loss is then less than the first one by a factor of four thousand
/// million: it is not what makes the gradients overflow.
const IN_A_ROW_MAX: u32 = 32;

/// The skipped updates of a training.
#[derive(Default)]
pub struct SkippedUpdates {
    /// All of them.
    pub count: u64,
    /// Those since the last step whose gradients were finite.
    in_a_row: u32,
}

impl SkippedUpdates {
    /// Counts a step whose loss or gradients are not finite. Returns whether the training may go on.
    pub fn add(&mut self, is_update: bool) -> bool {
        self.count += u64::from(is_update);
        self.in_a_row += u32::from(is_update);
        self.in_a_row <= IN_A_ROW_MAX
    }

    /// Counts a step whose loss and gradients are finite.
    pub fn end_row(&mut self) {
        self.in_a_row = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_two_updates_in_a_row_may_be_skipped() {
        let mut skipped = SkippedUpdates::default();
        for _ in 0..2 {
            assert!((0..32).all(|_| skipped.add(true)));
            skipped.end_row();
        }
        assert_eq!(skipped.count, 64);
        assert!((0..100).all(|_| skipped.add(false)), "only the last batch of an update skips it");
        assert!((0..33).any(|_| !skipped.add(true)));
    }
}
