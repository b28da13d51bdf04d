"""The learner on a stream of one's own, without task borders: partial_fit, predict, save, load, prequential test."""
