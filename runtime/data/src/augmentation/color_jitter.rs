//! Changes brightness, contrast, saturation and hue by random factors, in a random order.

use std::fmt;

use super::operation::Operation;
use crate::random::RandomStream;

/// The ranges of torchvision's `ColorJitter`, least and most; `None` for what stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColorJitter {
    /// Factors of at least 0, as for contrast and saturation; 1 changes nothing.
    pub brightness: Option<(f64, f64)>,
    pub contrast: Option<(f64, f64)>,
    pub saturation: Option<(f64, f64)>,
    /// Parts of a turn, from -0.5 to 0.5.
    pub hue: Option<(f64, f64)>,
}

impl ColorJitter {
    /// Draws the operations for an image.
    pub(crate) fn draw(&self, random: &mut RandomStream) -> Vec<Operation> {
        let mut factor = |range: Option<(f64, f64)>| range.map(|range| random.uniform(range));
        let drawn = [
            factor(self.brightness).map(Operation::Brightness),
            factor(self.contrast).map(Operation::Contrast),
            factor(self.saturation).map(Operation::Saturation),
            factor(self.hue).map(Operation::Hue),
        ];
        let mut operations: Vec<Operation> = drawn.into_iter().flatten().collect();
        random.shuffle(&mut operations);
        operations
    }
}

impl fmt::Display for ColorJitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "color_jitter")?;
        let ranges = [
            ("brightness", self.brightness),
            ("contrast", self.contrast),
            ("saturation", self.saturation),
            ("hue", self.hue),
        ];
        for (name, range) in ranges {
            if let Some((least, most)) = range {
                write!(f, " {name} {least} to {most}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Epoch;

    #[test]
    fn factors_are_drawn_from_their_ranges_and_applied_in_any_order() {
        let jitter = ColorJitter { brightness: Some((0.6, 1.4)), hue: Some((-0.1, 0.1)), ..ColorJitter::default() };
        let mut hue_is_first = 0;
        for sample in 0..1000 {
            let drawn = jitter.draw(&mut Epoch::default().stream("test", sample));
            assert_eq!(drawn.len(), 2);
            for operation in &drawn {
                match operation {
                    Operation::Brightness(factor) => assert!((0.6..=1.4).contains(factor)),
                    Operation::Hue(turn) => assert!((-0.1..=0.1).contains(turn)),
                    other => panic!("{other:?} has no range"),
                }
            }
            hue_is_first += usize::from(matches!(drawn[0], Operation::Hue(_)));
        }
        assert!((400..600).contains(&hue_is_first), "{hue_is_first}");
    }
}
