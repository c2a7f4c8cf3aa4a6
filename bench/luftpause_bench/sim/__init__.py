"""Do scheduler and dataplanes keep their promises in small simulated worlds?"""
