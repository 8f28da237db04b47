"""Numbers that several parts of the engine mean the same by. What they are good for is said where they are used."""

LIKELY = 0.5  # probability, from which on something is rather so than not
NINE_IN_TEN = 1.2816  # deviations that nine in ten stay below, of a normal distribution
NOISE_DEVIATIONS = 2.0  # that noise alone explains
ODD_DEVIATIONS = 3.0  # noise alone hardly explains them: what is beyond counts less, or is looked at again
ABSURD_DEVIATIONS = 5.0  # noise never explains them
CHANGE_IN_A_ROW = 2  # surprises that are a change of the world, not mistakes
FEWEST_SAMPLES = 4  # that can say anything
NORMAL_FROM_SAMPLES = 5  # on, it is known what is normal
EARLY_SAMPLES = 40  # in which everything is looked at again with every sample
RECENT_STEPS = 20.0  # after which what changes with time alone is forgotten to 1/e
FADING_SAMPLES = 50.0  # over which averages go that follow a drift, and within which rare things count together
