//! The normal numbers of PyTorch's generator on the processor, `torch.randn` with `torch.Generator().manual_seed(seed)` in
//! fp32, so that a diffusion begins with the same latents.
//!
//! The generator is MT19937 (Matsumoto and Nishimura 1998). PyTorch fills a tensor with uniform numbers and then converts
//! them in blocks of 16 (Box and Muller 1958). Here logarithm and angle are computed in f64: a number differs by at most 2e-6
//! from PyTorch's, which depends on the processor.

use std::f64::consts::TAU;

const WORDS: usize = 624;
const BLOCK: usize = 16;

struct MersenneTwister {
    state: [u32; WORDS],
    next: usize,
}

impl MersenneTwister {
    fn new(seed: u64) -> Self {
        let mut state = [seed as u32; WORDS];
        for at in 1..WORDS {
            let before = state[at - 1];
            state[at] = (before ^ (before >> 30)).wrapping_mul(1_812_433_253).wrapping_add(at as u32);
        }
        MersenneTwister { state, next: WORDS }
    }

    fn twist(&mut self) {
        for at in 0..WORDS {
            let word = (self.state[at] & 0x8000_0000) | (self.state[(at + 1) % WORDS] & 0x7fff_ffff);
            let odd = if word & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[at] = self.state[(at + 397) % WORDS] ^ (word >> 1) ^ odd;
        }
        self.next = 0;
    }

    fn word(&mut self) -> u32 {
        if self.next == WORDS {
            self.twist();
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// Draws a number uniformly from 0..1: a multiple of 2⁻²⁴.
    fn unit(&mut self) -> f32 {
        (self.word() & 0x00ff_ffff) as f32 / (1 << 24) as f32
    }
}

/// Converts uniform numbers of 0..1 to normal ones: a pair from the numbers at `i` and `i + 8`.
fn normal_block(block: &mut [f32]) {
    let (first, second) = block.split_at_mut(BLOCK / 2);
    for (a, b) in first.iter_mut().zip(second) {
        let radius = (-2.0 * libm::log(f64::from(1.0 - *a))).sqrt();
        let angle = TAU * f64::from(*b);
        (*a, *b) = ((radius * libm::cos(angle)) as f32, (radius * libm::sin(angle)) as f32);
    }
}

/// Returns `count` normal numbers of a seed; `None` for fewer than 16, which PyTorch draws in another way.
pub(super) fn normal_numbers(seed: u64, count: usize) -> Option<Vec<f32>> {
    let tail = count.checked_sub(BLOCK)?;
    let mut generator = MersenneTwister::new(seed);
    let mut numbers: Vec<f32> = (0..count).map(|_| generator.unit()).collect();
    numbers.chunks_exact_mut(BLOCK).for_each(normal_block);
    if !count.is_multiple_of(BLOCK) {
        // The last 16 numbers are drawn again.
        numbers[tail..].fill_with(|| generator.unit());
        normal_block(&mut numbers[tail..]);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `torch.randn(count, generator=torch.Generator().manual_seed(seed))` of PyTorch 2.11: the first and the last two.
    const NUMBERS: [(u64, usize, [f32; 4]); 3] = [
        (0, 16384, [-1.1258398, -1.1523602, -1.3664697, -1.078208]),
        (42, 21, [1.9269153, 1.4872841, -0.6215954, -0.59200054]),
        (4294967301, 1000, [1.8423299, 0.51888716, -0.11921506, 0.10880356]),
    ];

    #[test]
    fn the_numbers_are_those_of_pytorch() {
        for (seed, count, expected) in NUMBERS {
            let numbers = normal_numbers(seed, count).expect("at least 16");
            let found = [numbers[0], numbers[1], numbers[count - 2], numbers[count - 1]];
            let differ = found.iter().zip(expected).any(|(a, b)| (a - b).abs() > 2e-6);
            assert!(!differ, "seed {seed}: {found:?}, not {expected:?}");
        }
        assert_eq!(normal_numbers(0, 15), None);
    }
}
