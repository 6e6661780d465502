//! Chance from a seed: the same numbers in every run and on every machine.

/// A generator of 64-bit numbers (xoshiro256++, seeded by splitmix64).
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// The generator of `seed` for one purpose; another `purpose` gives other numbers.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut mixed = seed ^ purpose.wrapping_mul(0xD1B5_4A32_D192_ED03);
        Self { state: std::array::from_fn(|_| splitmix(&mut mixed)) }
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// A fraction, 0 to below 1.
    pub fn fraction(&mut self) -> f64 {
        // The 53 high bits are what a double holds.
        (self.number() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number from `low` to below `high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.fraction()
    }

    /// The time to the next arrival where `mean` passes between two, as chance has it (Poisson).
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.fraction()).ln()
    }

    /// A number of the normal distribution.
    pub fn gauss(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.fraction()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.fraction()).cos()
    }

    /// A number of the lognormal distribution.
    pub fn lognormal(&mut self, median: f64, sigma: f64) -> f64 {
        median * (sigma * self.gauss()).exp()
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_its_numbers_and_another_gives_others() {
        let draw = |seed, purpose| {
            let mut rng = Rng::new(seed, purpose);
            [rng.number(), rng.number(), rng.number()]
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn the_distributions_have_their_means() {
        let mut rng = Rng::new(7, 0);
        let mut mean =
            |draw: &mut dyn FnMut(&mut Rng) -> f64| (0..100_000).map(|_| draw(&mut rng)).sum::<f64>() / 100_000.0;
        assert!((mean(&mut Rng::fraction) - 0.5).abs() < 0.01);
        assert!((mean(&mut |rng| rng.exponential(3.0)) - 3.0).abs() < 0.05);
        assert!(mean(&mut Rng::gauss).abs() < 0.02);
        assert!((mean(&mut |rng| rng.lognormal(1.0, 0.8)) - 0.32f64.exp()).abs() < 0.03);
    }
}
