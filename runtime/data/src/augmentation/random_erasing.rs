//! Overwrites a random rectangle of the values of an image (Zhong et al., "Random Erasing", 2017).

use std::fmt;

use super::random_resized_crop::CropRange;
use crate::geometry::{Part, Size};
use crate::random::RandomStream;
use flagperf_core::tensor::{DType, Element as _};
use flagperf_core::with_element_type;

/// Number of draws before the image stays as it is, as in torchvision.
const DRAWS: usize = 10;

/// The parameters of torchvision's `RandomErasing`.
#[derive(Clone, Debug, PartialEq)]
pub struct RandomErasing {
    pub probability: f64,
    /// The sizes of the rectangle; its ratio is that of the height to the width.
    pub range: CropRange,
    pub value: ErasedValue,
}

/// What the values of the rectangle become.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ErasedValue {
    /// One value per channel.
    Channels([f32; 3]),
    /// Normal numbers with mean 0 and standard deviation 1.
    Normal,
}

impl RandomErasing {
    /// Overwrites values of an image, whose channels follow each other in `values`.
    pub(crate) fn apply(&self, random: &mut RandomStream, size: Size, dtype: DType, values: &mut [u8]) {
        if let Some(part) = self.draw(random, size) {
            self.erase(random, &part, size, dtype, values);
        }
    }

    fn draw(&self, random: &mut RandomStream, (width, height): Size) -> Option<Part> {
        if !random.chance(self.probability) {
            return None;
        }
        (0..DRAWS).find_map(|_| {
            let (part_height, part_width) = self.range.draw_size(random, (width, height));
            let fits = part_width < width && part_height < height;
            let (rows, columns) = fits.then(|| (random.place(part_height, height), random.place(part_width, width)))?;
            Some(Part { left: columns.start, top: rows.start, size: (part_width, part_height) })
        })
    }

    fn erase(&self, random: &mut RandomStream, part: &Part, (width, height): Size, dtype: DType, values: &mut [u8]) {
        let bytes = dtype.size();
        for (channel, plane) in values.chunks_exact_mut((width * height * bytes).max(1)).enumerate() {
            for line in plane.chunks_exact_mut(width * bytes).skip(part.top).take(part.size.1) {
                for value in line.chunks_exact_mut(bytes).skip(part.left).take(part.size.0) {
                    let number = match self.value {
                        ErasedValue::Channels(numbers) => numbers[channel % numbers.len()],
                        ErasedValue::Normal => random.normal() as f32,
                    };
                    write_number(number, dtype, value);
                }
            }
        }
    }
}

/// Writes a number in the type of the values, which has as many bytes as `out`.
fn write_number(number: f32, dtype: DType, out: &mut [u8]) {
    with_element_type!(dtype, T => out.copy_from_slice(bytemuck::bytes_of(&T::convert(number))));
}

impl fmt::Display for RandomErasing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RandomErasing { probability, range: CropRange { scale, ratio }, value } = self;
        write!(f, "random_erasing with probability {probability}, scale {scale:?}, ratio {ratio:?}, ")?;
        match value {
            ErasedValue::Channels(numbers) => write!(f, "value {numbers:?}"),
            ErasedValue::Normal => write!(f, "normal values"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Epoch;

    const SIZE: Size = (12, 10);

    fn erased(erasing: &RandomErasing, sample: u64) -> Vec<f32> {
        let mut values = vec![5.0f32; SIZE.0 * SIZE.1 * 3];
        let bytes = bytemuck::cast_slice_mut(&mut values);
        erasing.apply(&mut Epoch::default().stream("test", sample), SIZE, DType::F32, bytes);
        values
    }

    #[test]
    fn a_rectangle_of_the_area_of_the_range_is_overwritten_in_every_channel() {
        let range = CropRange { scale: (0.1, 0.3), ratio: (0.5, 2.0) };
        let erasing = RandomErasing { probability: 0.5, range, value: ErasedValue::Channels([0.0, 1.0, 2.0]) };
        let mut count = 0;
        for sample in 0..400 {
            let values = erased(&erasing, sample);
            let (first, rest) = values.split_at(SIZE.0 * SIZE.1);
            let erased: Vec<bool> = first.iter().map(|value| *value == 0.0).collect();
            for (channel, plane) in (1u8..).zip(rest.chunks_exact(SIZE.0 * SIZE.1)) {
                let expected = |is_erased| if is_erased { f32::from(channel) } else { 5.0 };
                assert!(plane.iter().zip(&erased).all(|(value, is_erased)| *value == expected(*is_erased)));
            }
            let area = erased.iter().filter(|is_erased| **is_erased).count();
            assert!(area == 0 || (8..=45).contains(&area), "{area}");
            count += usize::from(area > 0);
        }
        assert!((160..240).contains(&count), "{count} of 400");
    }

    #[test]
    fn erased_values_may_be_normal_numbers() {
        let range = CropRange { scale: (0.2, 0.3), ratio: (1.0, 1.0) };
        let erasing = RandomErasing { probability: 1.0, range, value: ErasedValue::Normal };
        let values: Vec<f32> = (0..50).flat_map(|sample| erased(&erasing, sample)).filter(|v| *v != 5.0).collect();
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        assert!(values.len() > 2000 && mean.abs() < 0.1, "{mean} of {}", values.len());
    }
}
